"""One broker in memory for the tests of queues, with share groups and short locks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import queues


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    with queues() as running:
        yield running.bootstrap
