"""The parsed sources, for the tests of the architecture alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture.sources import sources


@pytest.fixture(scope="package", autouse=True)
def no_trees_left() -> Iterator[None]:
    """Drop the syntax trees afterwards: every later collection of garbage would take a second for them."""
    yield
    sources.cache_clear()
