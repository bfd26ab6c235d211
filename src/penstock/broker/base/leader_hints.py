"""Leader hints (KIP-951): the current leader and its endpoint, for partitions that another broker leads.

A client that finds them in a Produce or Fetch response retries on the new leader without a Metadata request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId

__all__ = ["LeaderHints"]

#: errors that mean that another broker leads the partition
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
#: a topic as the request names it, the partition's index, and its part of the response
Answered: TypeAlias = tuple[str | TopicId, int, Any]
EndpointT = TypeVar("EndpointT")


class LeaderHints:
    """Adds hints to responses. Owned by the broker, which applies metadata to `image`."""

    __slots__ = ("_image",)

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def add(
        self,
        answers: Iterable[Answered],
        listener: str,
        leader_type: Callable[..., object],
        endpoint_type: Callable[..., EndpointT],
    ) -> list[EndpointT]:
        """Set `current_leader` of each rejected partition; returns the leaders' endpoints on `listener`.

        `leader_type` and `endpoint_type` are the API's own message types.
        """
        leaders = set()
        for topic, index, answer in answers:
            if answer.error_code in _MOVED:
                leader, epoch = self._leader_of(topic, index)
                answer.current_leader = leader_type(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
        endpoints = []
        for broker in self._image.brokers.values():
            if broker.id in leaders and not broker.fenced and listener in broker.endpoints:
                host, port = broker.endpoints[listener]
                endpoints.append(endpoint_type(node_id=broker.id, host=host, port=port, rack=broker.rack))
        return endpoints

    def _leader_of(self, topic: str | TopicId, index: int) -> tuple[int, int]:
        """The leader and its epoch as of the applied metadata; -1 for both if the partition is unknown."""
        image = self._image
        known = image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
        partition = None if known is None else known.partitions.get(index)
        return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)
