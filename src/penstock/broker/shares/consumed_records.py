"""Deletes records that all share groups of a topic have finished (penstock.delete.after.consumption).

The leader of a partition reads the lowest start offset of all share groups from every shard of the share
coordinator. It deletes nothing unless all shards have answered in the leader epochs of this broker's image: a
shard that is left out could have a group that needs the records. A group that has not chosen its start offset
yet needs all records. Records are kept for a while after that (`DeletionDelay`).

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.share_persister import SharePersister
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.broker.shares.group_settings import SharesConfig
from penstock.metadata.image import TOPIC, ClusterImage
from penstock.model.errors import ErrorCode, PenstockError
from penstock.ports import Clock
from penstock.shares.deletion_delay import DeletionDelay
from penstock.shares.persisted import UNINITIALIZED

__all__ = ["CONSUMED_KEY", "ConsumedRecords"]

log = get_logger("shares")
CONSUMED_KEY: Final = "penstock.delete.after.consumption"


class ConsumedRecords:
    """Moves the log start of partitions that this broker leads, again and again."""

    def __init__(
        self,
        config: SharesConfig,
        image: ClusterImage,
        partitions: Partitions,
        persister: SharePersister,
        clock: Clock,
        interval_s: float,
        delay_ms: int,
    ) -> None:
        """`delay_ms` is penstock.delete.finished.delay.ms."""
        self._config = config
        self._image = image
        self._partitions = partitions
        self._persister = persister
        self._clock = clock
        self._interval_s = interval_s
        self._delay_ms = delay_ms
        #: by partition and leader epoch
        self._delays: dict[tuple[Partition, int], DeletionDelay] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.delete()
            except PenstockError as e:
                # The next round tries again.
                log.debug("consumed_records_not_deleted", error=str(e))

    async def delete(self) -> None:
        """Delete finished records once. Raises an ApiError, or PeerGone, if a shard does not answer."""
        led = {(p.topic_id, p.index): p for p in self._led()}
        terms = {(p.topic_id, p.index): (p, p.leader_epoch) for p in led.values()}
        self._delays = {
            term: self._delays.get(term) or DeletionDelay(self._delay_ms) for term in terms.values()
        }
        if not led:
            return
        starts = await self._persister.lowest_starts(led)
        now_ms = int(self._clock.monotonic() * 1000)
        for key, (partition, leader_epoch) in terms.items():
            start = starts.get(key, UNINITIALIZED)
            if not partition.leading or partition.leader_epoch != leader_epoch:
                continue
            end = partition.log.high_watermark
            deletable = self._delays[partition, leader_epoch].deletable(now_ms, end)
            if start != UNINITIALIZED:
                partition.advance_log_start(min(start, end, deletable))

    def _led(self) -> Iterable[Partition]:
        """The partitions of topics with the config that this broker leads."""
        for (kind, name), configs in self._image.configs.items():
            topic = self._image.topics.get(name)
            if kind != TOPIC or topic is None or CONSUMED_KEY not in configs:
                continue
            if not self._config.topic(name).deletes_consumed:
                continue
            for index in topic.partitions:
                partition = self._partitions.find(name, index)
                if isinstance(partition, ErrorCode) or not partition.leading:
                    continue
                if partition.log.config.delete or not partition.log.config.compact:
                    yield partition
