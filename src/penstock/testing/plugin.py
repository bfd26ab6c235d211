"""The pytest plugin: `penstock_broker`, a broker in memory for one test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.brokers import BrokerThread


@pytest.fixture
def penstock_broker() -> Iterator[BrokerThread]:
    """A broker of this test's own, in memory, gone when the test ends."""
    # Imported here: a plugin is loaded into every test run on the machine, used or not.
    from penstock.testing.brokers import broker

    with broker() as running:
        yield running
