"""Recovers the high watermark of earlier leaders where too few replicas are in sync to reveal it.

The high watermark of a new leader may be behind the one that its predecessor sent to clients. The new leader
usually learns the rest from the fetches of in-sync replicas. Below `min.insync.replicas` the high watermark
stands still, and replicas on full disks do not fetch. Without recovery, committed records could not be read
and ListOffsets could not name their end. Every replica knows the high watermark of the leaders that it
followed, and of its own leadership. The leader reads it from each of them with a Fetch request.

Invariant: the high watermark moves only when all other replicas have responded in the current leader epoch.
No replica has sent clients a higher one by then, and none will. A replica that is down may be the former
leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.leadership import Leadership
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.net.client import Peer
from penstock.replication.epochs import NO_EPOCH, EpochEnd, truncation_offset
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic

__all__ = ["HighWatermarkRecovery"]

log = get_logger("high_watermark_recovery")
#: how long a replica may take to respond
_TIMEOUT_S: Final = 1.0


class HighWatermarkRecovery:
    """Recovers high watermarks of the partitions that one broker leads."""

    def __init__(self, image: ClusterImage, peer: Callable[[int, str], Peer]) -> None:
        """`peer` returns the connection to a node for a purpose."""
        self._image = image
        self._peer = peer
        self._task: asyncio.Task[None] | None = None

    def check(self, led: Iterable[Leadership]) -> None:
        """Start a recovery for the partitions that need one, unless one is running."""
        if self._task is None or self._task.done():
            needed = [leadership for leadership in led if leadership.needs_high_watermark_recovery]
            if needed:
                self._task = asyncio.get_running_loop().create_task(self.recover(needed))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def recover(self, needed: Sequence[Leadership]) -> None:
        """Recover the high watermark of each partition whose replicas are all up and respond."""
        for leadership in needed:
            partition, others = leadership.partition, list(leadership.state.followers)
            if not all(map(self._is_up, others)):
                continue
            try:
                committed = max([await self._committed_on(leadership, replica) for replica in others])
            except PenstockError as e:
                log.debug("high_watermark_not_recovered", partition=partition.name, error=str(e))
                continue
            if partition.leadership is leadership and leadership.needs_high_watermark_recovery:
                leadership.recover_high_watermark(committed)
                log.info(
                    "high_watermark_recovered",
                    partition=partition.name,
                    high_watermark=partition.log.high_watermark,
                )

    def _is_up(self, replica: int) -> bool:
        registered = self._image.brokers.get(replica)
        return registered is not None and registered.active

    async def _committed_on(self, leadership: Leadership, replica: int) -> int:
        """The offset below which `replica` knows the leader's records to be committed."""
        partition, state = leadership.partition, leadership.state
        opened, start = partition.log, state.epoch_start_offset
        epoch = opened.leader_epochs.epoch_of(start - 1)
        wanted = FetchPartition(
            partition=partition.index,
            current_leader_epoch=state.leader_epoch,
            fetch_offset=start,
            last_fetched_epoch=NO_EPOCH if epoch is None else epoch,
        )
        topic = FetchTopic(topic_id=partition.topic_id, partitions=[wanted])
        peer = self._peer(replica, "high-watermark-recovery")
        response = await peer.send(FETCH, FetchRequest(max_wait_ms=0, topics=[topic]), _TIMEOUT_S)
        ((fetched,),) = [of_topic.partitions for of_topic in response.responses]
        if fetched.error_code:
            raise ApiError(ErrorCode(fetched.error_code))
        if fetched.diverging_epoch is None:
            return fetched.high_watermark
        # Records of the replica behind the point of divergence are not the leader's records.
        shared = EpochEnd(fetched.diverging_epoch.epoch, fetched.diverging_epoch.end_offset)
        return min(fetched.high_watermark, truncation_offset(opened, shared))
