"""The end offsets of partitions, from their leaders: for the lag of share groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from penstock.broker.replica.commits import knows_latest_offset
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.metadata.image import ClusterImage
from penstock.net.client import Peer
from penstock.net.peer_errors import PeerGone
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

__all__ = ["EndOffsets"]

_LATEST: Final = -1
_SEND_S: Final = 5.0


class EndOffsets:
    """Finds high watermarks: here, or by ListOffsets from another broker."""

    def __init__(
        self, node_id: int, image: ClusterImage, partitions: Partitions, peer: Callable[[int, str], Peer]
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._peer = peer

    async def find(self, wanted: Mapping[str, Collection[int]]) -> dict[tuple[str, int], int]:
        """The end offsets of partitions by (topic, partition).

        Partitions without a leader, and those whose leader does not respond or does not know the end yet, are
        left out.
        """
        found: dict[tuple[str, int], int] = {}
        remote: dict[int, dict[str, list[int]]] = {}
        for name, indexes in wanted.items():
            topic = self._image.topics.get(name)
            for index in indexes:
                known = None if topic is None else topic.partitions.get(index)
                if known is None or known.leader < 0:
                    continue
                if known.leader != self._node_id:
                    remote.setdefault(known.leader, {}).setdefault(name, []).append(index)
                    continue
                partition = self._partitions.find(name, index)
                if isinstance(partition, Partition) and _knows_end(partition):
                    found[name, index] = partition.log.high_watermark
        for answer in await asyncio.gather(
            *(self._list(leader, topics) for leader, topics in remote.items())
        ):
            found |= answer
        return found

    async def _list(self, leader: int, topics: Mapping[str, list[int]]) -> dict[tuple[str, int], int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=i, timestamp=_LATEST) for i in indexes],
                )
                for name, indexes in topics.items()
            ],
        )
        try:
            response = await self._peer(leader, "shares").send(LIST_OFFSETS, request, _SEND_S)
        except PeerGone:
            return {}
        return {
            (topic.name, answer.partition_index): answer.offset
            for topic in response.topics
            for answer in topic.partitions
            if not answer.error_code
        }


def _knows_end(partition: Partition) -> bool:
    """Returns false while a new leader has not committed a record of its own term."""
    return partition.leading and knows_latest_offset(partition)
