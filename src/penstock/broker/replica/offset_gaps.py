"""Asks a leader about offsets that its response leaves out: compaction explains them, or a batch is damaged.

No checksum covers the base offset of a batch. A follower that took over a wrong one would lack the records
before it and give those behind it other offsets than its leader. A topic that is compacted may lack any
offset, and so may segments that were compacted before the topic ceased to be. Only the leader knows these.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode, PenstockError
from penstock.net.client import Peer
from penstock.storage.appending import OffsetGap
from penstock.storage.config import FOREVER
from penstock.wire.apis.get_replica_log_info import (
    GET_REPLICA_LOG_INFO,
    GetReplicaLogInfoRequest,
    LogInfoTopic,
    PartitionLogInfo,
)

__all__ = ["OffsetGaps"]

log = get_logger("replica_fetcher")
_TIMEOUT_S: Final = 5.0


class OffsetGaps:
    """The gaps that one fetcher has found; at most one question per partition is under way."""

    def __init__(self) -> None:
        self._asked: dict[Partition, asyncio.Task[None]] = {}

    def ask(self, peer: Peer, partition: Partition, gap: OffsetGap) -> None:
        """Have the follower accept the gap if the leader explains it. The fetch is repeated meanwhile."""
        if partition not in self._asked:
            task = asyncio.get_running_loop().create_task(self._ask(peer, partition, gap))
            self._asked[partition] = task
            task.add_done_callback(lambda _: self._asked.pop(partition, None))

    async def stop(self) -> None:
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, peer: Peer, partition: Partition, gap: OffsetGap) -> None:
        wanted = LogInfoTopic(
            topic_id=partition.topic_id, partitions=[partition.index], batches_at=[gap.offset]
        )
        request = GetReplicaLogInfoRequest(topic_partitions=[wanted])
        try:
            response = await peer.send(GET_REPLICA_LOG_INFO, request, _TIMEOUT_S)
        except PenstockError as e:
            log.info("offset_gap_unknown", partition=partition.name, error=str(e))
            return
        for topic in response.topic_partition_log_info_list:
            for info in topic.partition_log_info:
                if info.error_code == ErrorCode.NONE:
                    self._answered(partition, gap, info)

    def _answered(self, partition: Partition, gap: OffsetGap, info: PartitionLogInfo) -> None:
        # A leader of an earlier release does not say.
        gaps_to = FOREVER if info.gaps_to < 0 else info.gaps_to
        offsets = {"offset": gap.offset, "next_offset": gap.next_offset}
        if gaps_to >= gap.next_offset:
            partition.log.appender.gaps_to = gaps_to
            log.info("offset_gap_explained", partition=partition.name, **offsets)
        else:
            log.error("offset_gap_refused", partition=partition.name, **offsets)
