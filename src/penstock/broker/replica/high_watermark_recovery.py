"""What earlier leaders have committed, as the other replicas know it, where too few are in sync to show it.

A new leader's high watermark may be behind what its predecessor told clients. It learns the rest from the
fetches of those in sync; but below `min.insync.replicas` the high watermark stands still, and replicas on
full disks fetch nothing. As long as that lasts, records that were committed could not be read, nor their end
be named. Each of those replicas knows how far the leaders that it followed, or was itself, had committed,
and is asked as any reader asks.

Invariant: something follows only when all of them have told it in the present leader epoch. Then nobody has
ever told clients more, and nobody will. One that is away may be the one that led.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.leadership import Leadership
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.replication.epochs import NO_EPOCH, EpochEnd, truncation_offset
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker

__all__ = ["Inheritance"]

log = get_logger("inheritance")
#: how long a replica has for its answer
_PATIENCE_S: Final = 1.0


class Inheritance:
    """Of the partitions that one broker leads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._asking: asyncio.Task[None] | None = None

    def look(self, led: Iterable[Leadership]) -> None:
        """Ask for what is lacking, if any is and nobody is being asked already."""
        if self._asking is None or self._asking.done():
            lacking = [leadership for leadership in led if leadership.lacks_inheritance]
            if lacking:
                self._asking = asyncio.get_running_loop().create_task(self.claim(lacking))

    async def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def claim(self, lacking: Sequence[Leadership]) -> None:
        """Learn what is committed of each partition of which all replicas can tell."""
        for leadership in lacking:
            partition, others = leadership.partition, list(leadership.state.followers)
            if not all(map(self._is_up, others)):
                continue
            try:
                committed = max([await self._committed_on(leadership, replica) for replica in others])
            except PenstockError as e:
                log.debug("not_inherited", partition=partition.name, error=str(e))
                continue
            if partition.leadership is leadership and leadership.lacks_inheritance:
                leadership.inherit(committed)
                log.info("inherited", partition=partition.name, high_watermark=partition.log.high_watermark)

    def _is_up(self, replica: int) -> bool:
        registered = self._broker.image.brokers.get(replica)
        return registered is not None and registered.active

    async def _committed_on(self, leadership: Leadership, replica: int) -> int:
        """Up to where another replica knows our records to be committed."""
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
        peer = self._broker.peer(replica, "inheritance")
        response = await peer.send(FETCH, FetchRequest(max_wait_ms=0, topics=[topic]), _PATIENCE_S)
        ((answer,),) = [told.partitions for told in response.responses]
        if answer.error_code:
            raise ApiError(ErrorCode(answer.error_code))
        if answer.diverging_epoch is None:
            return answer.high_watermark
        # It has less than we, or other records behind some point: those say nothing of ours.
        shared = EpochEnd(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
        return min(answer.high_watermark, truncation_offset(opened, shared))
