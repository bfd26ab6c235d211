"""A real broker inside your tests.

    from penstock.testing import broker

    with broker() as b:
        producer = confluent_kafka.Producer({"bootstrap.servers": b.bootstrap})

It runs in a thread of the test's own process, on a free loopback port, in memory unless `data` names a
directory, and is ready in well under 100 ms. Any Kafka client can talk to it. The pytest plugin (installed
with the package) gives the same as the fixture `penstock_broker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.brokers import BrokerThread, broker

__all__ = ["BrokerThread", "broker"]


def __getattr__(name: str) -> Any:
    # Imported on first use: pytest loads the plugin next to this into every test run, used or not.
    if name in __all__:
        from penstock.testing import brokers

        return getattr(brokers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
