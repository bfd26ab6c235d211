"""Writes batches of this broker to a partition, wherever its leader is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.wire.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

__all__ = ["Append", "Send", "TopicWriter"]

_TIMEOUT_MS: Final = 10_000
#: appends to a partition that this broker leads: topic, partition, batch
Append: TypeAlias = Callable[[str, int, bytes], Awaitable[ErrorCode]]
#: sends to the internal listener of another broker; raises PeerGone
Send: TypeAlias = Callable[[int, ProduceRequest], Awaitable[ProduceResponse]]


class TopicWriter:
    """Appends to partitions of this broker, and sends batches for others to their leaders."""

    def __init__(self, node_id: int, image: ClusterImage, append: Append, send: Send) -> None:
        self._node_id = node_id
        self._image = image
        self._append = append
        self._send = send

    def leads(self, topic: str, index: int) -> bool:
        known = self._image.topics.get(topic)
        return known is not None and known.partitions[index].leader == self._node_id

    async def append_here(self, topic: str, index: int, batch: bytes) -> ErrorCode:
        """The result of one attempt, once the batch is committed, if this broker leads the partition."""
        return await self._append(topic, index, batch)

    async def write(self, topic: str, index: int, batch: bytes) -> ErrorCode:
        """The result of one attempt, once the batch is committed. Raises PeerGone."""
        known = self._image.topics.get(topic)
        partition = None if known is None else known.partitions.get(index)
        if known is None or partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader < 0:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if partition.leader == self._node_id:
            return await self._append(topic, index, batch)
        data = PartitionProduceData(index=index, records=memoryview(batch))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, topic_id=known.id, partition_data=[data])],
        )
        response = await self._send(partition.leader, request)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)
