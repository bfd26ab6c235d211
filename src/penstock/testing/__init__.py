"""A real broker, or a real cluster of them, inside your tests.

    from penstock.testing import broker, cluster

    with broker() as b:
        producer = confluent_kafka.Producer({"bootstrap.servers": b.bootstrap})

    with cluster(brokers=3) as c:
        c.kill(c.wait_for_leader("orders"))

They run in threads of the test's own process, on free loopback ports, in memory (one broker also in a
directory), and are ready in well under a second. Any Kafka client can talk to them. The pytest plugin
(installed with the package) gives the same as the fixtures `penstock_broker`, `penstock_cluster` and
`penstock_queues`, a cluster for tests of queues.

Imports: `broker.app` and the packages below it, `client`, and `backup` for a broker that serves a backup.
Used by: tests of applications, and the tests of this project.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.testing.brokers import BrokerThread, broker
    from penstock.testing.clusters import Cluster, cluster
    from penstock.testing.queue_clusters import QueueCluster, queues

__all__ = ["BrokerThread", "Cluster", "QueueCluster", "broker", "cluster", "queues"]

_HOMES: Final = {
    "BrokerThread": "penstock.testing.brokers",
    "broker": "penstock.testing.brokers",
    "Cluster": "penstock.testing.clusters",
    "cluster": "penstock.testing.clusters",
    "QueueCluster": "penstock.testing.queue_clusters",
    "queues": "penstock.testing.queue_clusters",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: pytest loads the plugin next to this into every test run, used or not.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
