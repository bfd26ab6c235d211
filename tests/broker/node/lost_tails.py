"""Logs that lose their tail."""

from __future__ import annotations

from penstock.broker.app.broker import Broker
from penstock.records.record import iter_batches, iter_records
from tests.broker.nodes import Cluster
from tests.broker.replication import replica, stored


def values_of(broker: Broker) -> list[bytes]:
    """The records in a broker's replica."""
    data = stored(replica(broker))
    return [
        record.value or b""
        for position, header in iter_batches(data)
        for record in iter_records(memoryview(data)[position : position + header.size])
    ]


def lose_tail(nodes: Cluster, node: int, path: str) -> None:
    """What a machine does that loses the last bytes of a segment: the last batch is cut short."""
    opened = nodes.disks[node].open(path)
    opened.truncate(opened.size() - 5)
    opened.close()
