"""The pytest plugin: `penstock_broker`, `penstock_cluster` and `penstock_queues`, for one test each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.brokers import BrokerThread
    from penstock.testing.clusters import Cluster
    from penstock.testing.queue_clusters import QueueCluster

# Brokers are imported where they are used: a plugin is loaded into every test run on the machine.


@pytest.fixture
def penstock_broker() -> Iterator[BrokerThread]:
    """A broker of this test's own, in memory, gone when the test ends."""
    from penstock.testing.brokers import broker

    with broker() as running:
        yield running


@pytest.fixture
def penstock_cluster() -> Iterator[Cluster]:
    """A cluster of three brokers of this test's own, in memory, gone when the test ends."""
    from penstock.testing.clusters import cluster

    with cluster() as running:
        yield running


@pytest.fixture
def penstock_queues() -> Iterator[QueueCluster]:
    """A broker with share groups of this test's own, whose time the test moves; gone when the test ends."""
    from penstock.testing.queue_clusters import queues

    with queues() as running:
        yield running


@pytest.fixture
def make_penstock_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters for this test: `make_penstock_cluster(brokers=5, config={...})`."""
    from penstock.testing.clusters import cluster

    with ExitStack() as running:

        def make(brokers: int = 3, *, config: Mapping[str, object] | None = None) -> Cluster:
            return running.enter_context(cluster(brokers, config=config))

        yield make
