"""Takes snapshots of the image, so that the metadata log does not grow forever (KIP-630).

Every node takes its own snapshots: when the log has grown by
`metadata.log.max.record.bytes.between.snapshots`, or when it has grown at all and
`metadata.log.max.snapshot.interval.ms` have passed. The log before the snapshot is then deleted.

The records of a snapshot are collected in slices. The image does not change meanwhile: the metadata loader
waits for the end. A worker thread encodes them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.node.metadata_log import MetadataLog
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.broker.node.snapshot_files import encode_snapshot
from penstock.metadata.image import ClusterImage
from penstock.metadata.snapshot import snapshot_records
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError, StorageError
from penstock.model.steps import Steps, collected
from penstock.ports import World
from penstock.raft.messages import LogPoint
from penstock.raft.voters import VoterSet
from penstock.storage.removal import Removal
from penstock.wire.schema import Struct

__all__ = ["Snapshots"]

log = get_logger("snapshots")
#: records that are collected in one slice; each takes about a microsecond
_RECORDS_AT_ONCE: Final = 1000


class Snapshots:
    """Takes snapshots, one at a time. The metadata loader calls `applied` after every batch."""

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        image: ClusterImage,
        metadata_log: MetadataLog,
        quorum: QuorumDriver,
    ) -> None:
        self._config = config
        self._world = world
        self._image = image
        self._log = metadata_log
        self._quorum = quorum
        self._grown = 0
        self._last_ms = world.clock.monotonic() * 1000
        self._task: asyncio.Task[None] | None = None

    def applied(self, end_offset: int, size: int) -> Steps[None] | None:
        """The image holds everything below `end_offset`, which made the log longer by `size` bytes.

        Returns the steps that take a snapshot if one is due; the image must not change before they end.
        """
        self._grown += size
        now_ms = self._world.clock.monotonic() * 1000
        due = (
            self._grown >= self._config.metadata_log_max_record_bytes_between_snapshots
            or now_ms - self._last_ms >= (self._config.metadata_log_max_snapshot_interval_ms or float("inf"))
        )
        if not due or self._task is not None:
            return None
        self._grown = 0
        self._last_ms = now_ms
        return self._collect(end_offset)

    def _collect(self, end_offset: int) -> Steps[None]:
        point = LogPoint(self._log.epoch_at(end_offset), end_offset)
        history = self._quorum.state.history
        voters = history.at(end_offset) if history.latest_offset >= 0 else None
        records = yield from collected(snapshot_records(self._image), _RECORDS_AT_ONCE)
        self._task = asyncio.get_running_loop().create_task(self._take(point, records, voters))
        self._task.add_done_callback(self._done)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None

    async def _take(self, point: LogPoint, records: list[Struct], voters: VoterSet | None) -> None:
        in_thread = self._world.workers.in_thread
        try:
            now_ms = self._world.clock.now_ms()
            content = await in_thread(encode_snapshot, records, voters, now_ms, point)
            await in_thread(self._log.snapshots.store, point, content)
            removals = await self._quorum.run(lambda: self._keep(point))
        except PenstockError as e:
            # The log keeps its length. The next attempt may succeed.
            log.error("snapshot_failed", end_offset=point.offset, error=str(e))
            return
        log.info("snapshot_taken", end_offset=point.offset, epoch=point.epoch, bytes=len(content))
        for removal in removals:
            await in_thread(removal.delete)

    def _keep(self, point: LogPoint) -> list[Removal]:
        """Start the log at the snapshot's end, unless a later snapshot of the leader has replaced it."""
        if point.offset <= self._log.start_offset:
            raise StorageError("a later snapshot has replaced the log")
        self._log.keep_snapshot(point)
        self._quorum.node.snapshot_taken(point)
        return self._log.trim()
