"""Frees the disks of tiered topics: removes local segments that the archive is proven to have (ADR 90).

Every replica frees its own disk, by `local.retention.ms` and `local.retention.bytes`. A segment goes in four
steps, of which each may be the last before a crash: the archive is read and proves that it has the records;
the local log start moves; it is saved with its data directory; the files are removed. A proof counts only if
the log is the same after it: neither truncated, nor in another leader epoch.

Leaders also apply the retention of the whole log to what only the archive has, by moving the log start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.archive.errors import ArchiveError
from penstock.broker.app.archive_access import ArchiveAccess, owner_of
from penstock.broker.app.retention import remove_expired
from penstock.broker.base.logs import get_logger
from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.base.rounds import Rounds
from penstock.broker.node.clock_watch import ClockWatch
from penstock.broker.replica.copy_source import bytes_before, copyable_end
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import PenstockError, StorageError
from penstock.ports import World
from penstock.remote.partition import RemotePartition
from penstock.remote.source import ArchiveSource
from penstock.storage.directory import DataDirectory
from penstock.tiering.errors import ArchiveContradicts, ArchiveFallsShort
from penstock.tiering.expiry import Expiry, archived_survey, budget_of, expired_until
from penstock.tiering.proof import KeptLog, Prover, ReadPage
from penstock.tiering.stats import CopyStats
from penstock.timekeeping.rounds import RoundGuard, Survey

__all__ = ["LocalRetention"]

log = get_logger("tiering")
#: partitions that are looked at in parallel
_PARALLEL: Final = 4


class _Moment(NamedTuple):
    """What must not change between the beginning of a proof and its use."""

    is_online: bool
    is_tiered: bool
    leader_epoch: int
    leading: bool
    log_start_offset: int
    local_log_start_offset: int


class LocalRetention:
    """Rounds over all tiered partitions of a broker."""

    def __init__(
        self,
        partitions: Partitions,
        access: ArchiveAccess,
        world: World,
        clock_watch: ClockWatch,
        stats: CopyStats,
        interval_s: Callable[[], float],
    ) -> None:
        self._partitions = partitions
        self._access = access
        self._world = world
        self._clock_watch = clock_watch
        self._stats = stats
        self._prover = Prover(world.workers)
        self._guard = RoundGuard()
        #: what the last round has found; None before the first
        self._survey: Survey | None = None
        self.rounds: Final = Rounds(self.round, interval_s, _report)

    async def round(self) -> None:
        """Free the disks once."""
        tiered = [
            each for each in self._partitions if each.log.config.remote_storage_enable and each.is_online
        ]
        self._prover.keep({owner_of(each) for each in tiered})
        if not tiered:
            self._stats.set_suspended({})
            return
        try:
            root = await self._access.root()
        except (ArchiveError, OSError):
            self._stats.available = False
            raise
        self._stats.available = True
        work = _Round(root.id, self._may_delete_overdue(), iter(tiered))
        async with asyncio.TaskGroup() as group:
            for _ in range(_PARALLEL):
                group.create_task(self._look_at_all(work))
        for directory, partitions in work.moved.items():
            try:
                await self._partitions.checkpoints.write(directory)
            except StorageError as e:
                log.error("local_retention_failed", directory=directory.path, error=str(e))
            else:
                for partition in partitions:
                    remove_expired(self._partitions, partition)
        self._stats.set_suspended(work.suspended)
        self._survey = work.survey

    def _may_delete_overdue(self) -> bool:
        """As `RetentionRounds`, with what the last round has found."""
        if self._survey is None:
            return False
        watch = self._clock_watch
        confirmed = watch.watched_since_ms == 0
        now_ms, grace_ms = watch.read().monotonic_ms, watch.grace_ms()
        return self._guard.may_delete(self._survey, now_ms, grace_ms, confirmed=confirmed)

    async def _look_at_all(self, work: _Round) -> None:
        for partition in work.partitions:
            await asyncio.sleep(0)
            if not partition.is_online:
                continue
            try:
                await self._explain(partition, work)
                await self._expire_archived(partition, work)
                await self._free(partition, work)
            except ArchiveContradicts as e:
                # A leader copies what the archive has lost and its disk still has.
                partition.archived = None
                work.suspended[partition.topic] = work.suspended.get(partition.topic, 0) + 1
                log.error("local_deletion_suspended", partition=partition.name, error=str(e))
            except ArchiveFallsShort as e:
                log.debug("local_deletion_waits", partition=partition.name, error=str(e))
            except (PenstockError, OSError) as e:
                log.warning("local_retention_failed", partition=partition.name, error=str(e) or repr(e))

    # -- the disk

    async def _free(self, partition: Partition, work: _Round) -> None:
        """Move the local log start as far as the retention wants and the archive has the log."""
        opened, workers = partition.log, self._world.workers
        below = min(copyable_end(partition), opened.high_watermark)
        now_ms = self._clock_watch.now_ms()
        wanted = await retry_when_cached(
            partition, workers, lambda: opened.retention.local_end(below, now_ms, cached_only=True)
        )
        if wanted <= opened.local_log_start_offset:
            if opened.segments.first.base_offset < opened.local_log_start_offset:
                # A crash came between the last two steps.
                work.move(partition)
            return
        before, epochs = _moment(partition), opened.leader_epochs
        known = epochs.within(opened.log_start_offset, wanted)
        kept = _kept(partition)
        chain = self._access.chain(work.archive_id, owner_of(partition))
        own = partial(bytes_before, partition, workers)
        pages = self._pages(partition)
        proven = await self._prover.prove(self._access.store, chain, kept, wanted, pages, own)
        if _moment(partition) != before or epochs.within(opened.log_start_offset, wanted) != known:
            return
        end = _boundary(partition, min(proven.end_offset, opened.high_watermark))
        if end <= opened.local_log_start_offset:
            return
        opened.advance_local_start(end)
        self._renew(partition, proven.manifest)
        log.info("local_start_moved", partition=partition.name, offset=end, manifest=proven.manifest.number)
        work.move(partition)

    def _pages(self, partition: Partition) -> ReadPage:
        source = ArchiveSource(self._access.store, _not_read, self._world.workers)

        async def read(manifest: Manifest, entry: PageEntry) -> tuple[SegmentEntry, ...]:
            return (await source.page(manifest, entry)).segments

        return read

    def _renew(self, partition: Partition, manifest: Manifest) -> None:
        """Have readers use a manifest that was read just now."""
        remote = partition.log.remote
        if isinstance(remote, RemotePartition):
            remote.renew(manifest)

    # -- the archive

    async def _explain(self, partition: Partition, work: _Round) -> None:
        """Have a log whose recorded starts are lost start where the archive does, if that reaches to it."""
        opened = partition.log
        if opened.explained_start >= opened.log_start_offset:
            return
        before = _moment(partition)
        start = opened.local_log_start_offset
        kept = KeptLog(start, start, opened.leader_epochs)
        manifest = await self._prover.newest(self._access.chain(work.archive_id, owner_of(partition)), kept)
        if manifest is not None and manifest.log_start_offset < manifest.next_offset < start:
            raise ArchiveContradicts(
                f"the archive of {partition.name} ends at offset {manifest.next_offset}, and the log, whose "
                f"start is not known any more, has the records from {start} on"
            )
        if _moment(partition) != before or opened.explained_start >= opened.log_start_offset:
            return
        if manifest is None or not manifest.log_start_offset < start <= manifest.next_offset:
            # The archive knows of no earlier record. Other replicas were asked for theirs.
            found = start
            partition.advance_log_start(start)
        else:
            found = max(manifest.log_start_offset, manifest.base_offset, opened.explained_start)
            opened.begin_in_archive(found)
            self._renew(partition, manifest)
        log.info("log_start_explained", partition=partition.name, log_start_offset=found)
        work.move(partition)

    async def _expire_archived(self, partition: Partition, work: _Round) -> None:
        """Move the log start of a leader behind records that only the archive has, if they are to go."""
        opened = partition.log
        if not partition.leading or opened.log_start_offset >= opened.local_log_start_offset:
            return
        before = _moment(partition)
        kept = _kept(partition)
        manifest = await self._prover.newest(self._access.chain(work.archive_id, owner_of(partition)), kept)
        assert manifest is not None, "the log needs its archive"
        if not (manifest.pages or manifest.segments):
            # Leaders move their log start first: another cluster has deleted the topic, for example.
            raise ArchiveContradicts(f"the archive of {partition.name} has released all of its segments")
        start = await self._expired(partition, manifest, work)
        # An earlier leader has moved the log start, and this one has not heard of it.
        start = max(start, min(manifest.log_start_offset, before.local_log_start_offset))
        if _moment(partition) == before and start > opened.log_start_offset:
            partition.advance_log_start(start)
            self._renew(partition, manifest)
            work.move(partition)

    async def _expired(self, partition: Partition, manifest: Manifest, work: _Round) -> int:
        opened, config = partition.log, partition.log.config
        start, local = opened.log_start_offset, opened.local_log_start_offset
        expiry = Expiry(config.retention_ms, config.retention_bytes, self._clock_watch.now_ms())
        since_ms = self._clock_watch.watched_since_ms
        survey = archived_survey(manifest, start, local, expiry, since_ms)
        work.survey = Survey(work.survey.total + survey.total, work.survey.overdue + survey.overdue)
        if survey.overdue and not work.may_delete_overdue:
            expiry = expiry._replace(now_ms=None)
        budget, page = expired_until(
            manifest.pages, budget_of(manifest, start, local, opened.size, expiry), local, expiry
        )
        if page is not None:
            entries = await self._pages(partition)(manifest, page)
            return expired_until(entries, budget, local, expiry)[0].start
        return expired_until(manifest.segments, budget, local, expiry)[0].start


@dataclass
class _Round:
    """What the tasks of one round share."""

    archive_id: str
    may_delete_overdue: bool
    partitions: Iterator[Partition]
    #: partitions with a new start, to be saved before segments are removed
    moved: dict[DataDirectory, dict[Partition, None]] = field(default_factory=dict)
    #: by topic, partitions whose archive contradicts their logs
    suspended: dict[str, int] = field(default_factory=dict)
    survey: Survey = field(default_factory=Survey)

    def move(self, partition: Partition) -> None:
        self.moved.setdefault(partition.directory, {})[partition] = None


def _report(error: Exception, is_expected: bool) -> None:
    if is_expected:
        log.warning("local_retention_failed", error=str(error))
    else:
        log.error("local_retention_failed", error=repr(error), exc_info=error)


def _moment(partition: Partition) -> _Moment:
    opened = partition.log
    return _Moment(
        partition.is_online,
        opened.config.remote_storage_enable,
        partition.leader_epoch,
        partition.leading,
        opened.log_start_offset,
        opened.local_log_start_offset,
    )


def _kept(partition: Partition) -> KeptLog:
    opened, known = partition.log, partition.archived
    return KeptLog(
        opened.log_start_offset,
        opened.local_log_start_offset,
        opened.leader_epochs,
        known.end_offset if known is not None and known.end_offset is not None else -1,
    )


def _boundary(partition: Partition, offset: int) -> int:
    """The largest base offset of a segment at or below `offset`; the local log start if there is none."""
    bases = (each.base_offset for each in partition.log.segments)
    return max((base for base in bases if base <= offset), default=partition.log.local_log_start_offset)


async def _not_read() -> Manifest:
    raise AssertionError("the manifest is known")
