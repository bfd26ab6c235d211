"""Topics with sealed segments, for tests of damage."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from tests.broker.nodes import Cluster, eventually
from tests.broker.replication import (
    make_topic,
    produce,
    replica,
)

VALUES = [b"value %d" % i for i in range(6)]


async def sealed_topic(nodes: Cluster) -> None:
    """A segment that is sealed on all replicas, each value in a batch of its own, and one more."""
    await make_topic(nodes, *sorted(nodes.brokers))
    for value in VALUES:
        assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
    for node in nodes.brokers:
        replica(nodes[node]).log.roll()
    assert (await produce(nodes, 1, b"last")).error_code == ErrorCode.NONE
    # Followers hear with the next answer how far all is committed.
    await eventually(lambda: all(replica(nodes[node]).log.high_watermark == 7 for node in nodes.brokers))
