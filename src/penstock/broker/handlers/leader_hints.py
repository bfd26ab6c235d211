"""Who leads instead (KIP-951): what a refusal tells a client, so that it need not ask for metadata first."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker

__all__ = ["MOVED", "current_leader", "leader_endpoints"]

#: errors that mean: somebody else leads
MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def current_leader(broker: Broker, topic: str | TopicId, index: int) -> tuple[int, int]:
    """(leader, leader epoch) as far as this broker has heard; -1 where it knows of none."""
    image = broker.image
    known = image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    partition = None if known is None else known.partitions.get(index)
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


def leader_endpoints(
    broker: Broker, listener: str, leaders: Collection[int]
) -> Iterator[tuple[int, str, int, str | None]]:
    """(id, host, port, rack) of those of `leaders` that can be reached through `listener`."""
    for node, host, port, rack, fenced in broker.nodes(listener):
        if node in leaders and not fenced:
            yield node, host, port, rack
