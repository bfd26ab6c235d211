"""Replicas of one partition in memory, as leaders that copy to a simulated store."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from penstock.archive.chain import newest_manifest
from penstock.archive.documents import Manifest
from penstock.archive.names import TIER
from penstock.archive.reading import PartitionReader
from penstock.archive.verifying import verify_partition
from penstock.broker.replica.copy_source import sealed_since
from penstock.records.batch import LOG_OVERHEAD, BatchHeader
from penstock.records.record import iter_batches
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.segment_files import LOG
from penstock.testing.simulation.object_store import SimulatedStore
from penstock.testing.simulation.ports import SimRng
from penstock.tiering.copying import Archive, CopyTurn
from penstock.tiering.progress import Copied
from penstock.tiering.selection import LocalSegment, LocalView
from tests.archive.logs import OWNER, FixedClock
from tests.storage.compacted import InlineWorkers
from tests.storage.logs import batch, open_log

__all__ = ["Replica", "archive_in", "contents", "newest", "verified"]


@dataclass
class Replica:
    """A log, and whether its broker believes that it leads."""

    log: Log
    epoch: int = 0
    leads: bool = True
    copies: bool = True

    @classmethod
    def new(cls, **settings: Any) -> Replica:
        return cls(open_log(MemoryFiles(), **{"segment_bytes": 600, **settings}))

    def produce(self, count: int, value: bytes = b"value", **fields: Any) -> None:
        """Append and commit `count` batches of one to three records."""
        for n in range(count):
            self.log.append(batch(1 + n % 3, value=value, **fields), self.epoch)
        self.log.advance_high_watermark(self.log.end_offset)

    def follow(self, leader: Replica) -> None:
        """Replicate all that the leader has, and its log start."""
        while self.log.end_offset < leader.log.end_offset:
            found = leader.log.read(self.log.end_offset, 1 << 20, upper=leader.log.end_offset)
            assert found is not None
            self.log.append_replicated(memoryview(bytearray(found.read())))
        self.log.advance_high_watermark(leader.log.high_watermark)
        self.log.start_at(leader.log.log_start_offset)
        self.log.retention.apply(None)

    @property
    def sealed_end(self) -> int:
        """Where a complete archive ends."""
        return max(self.log.segments.active.base_offset, self.log.log_start_offset)

    async def turn(self, archive: Archive) -> Copied | None:
        return await CopyTurn(archive, self, OWNER, self.epoch).run()

    # -- tiering.copying.LocalSource

    def view(self, since: int) -> LocalView | None:
        log = self.log
        if not self.leads:
            return None
        end = log.last_stable_offset if self.copies else -1
        return LocalView(
            log.log_start_offset,
            log.local_log_start_offset,
            log.end_offset,
            end,
            sealed_since(log, since),
            log.leader_epochs.epoch_of,
        )

    async def position(self, segment: LocalSegment, offset: int) -> int:
        return self.log.segments.holding(segment.base_offset).find(offset)

    async def read(self, segment: LocalSegment, position: int, size: int) -> bytes:
        found = self.log.segments.holding(segment.base_offset)
        if found.base_offset != segment.base_offset:
            raise FileNotFoundError("retention has removed the segment")
        return found.files.open(found.path(LOG)).pread(size, position)

    async def bytes_before(self, offset: int, size: int) -> bytes | None:
        log, found = self.log, b""
        if offset <= log.segments.first.base_offset or offset > log.high_watermark:
            return None
        for segment in log.segments:
            for position, header in segment.scan(0):
                base, length = header[0], header[1] + LOG_OVERHEAD
                if base < offset:
                    found += segment.open_file().pread(length, position)
                    end = BatchHeader._make(header).next_offset
        return found[-size:] if end <= offset else b""

    async def is_compacted(self, segment: LocalSegment) -> bool:
        return self.log.segments.holding(segment.base_offset).is_compacted


def archive_in(
    store: SimulatedStore, clock: FixedClock, seed: int = 1, object_bytes: int = 1500, pace: Any = None
) -> Archive:
    async def unlimited(size: int) -> None:
        """Send at once."""

    return Archive(
        store=store,
        archive_id="archive-id",
        clock=clock,
        rng=SimRng(Random(seed)),
        workers=InlineWorkers(),
        pace=pace or unlimited,
        put=lambda size: None,
        object_bytes=object_bytes,
    )


async def newest(store: SimulatedStore) -> Manifest | None:
    found = await newest_manifest(store, OWNER, TIER)
    return None if found is None else found[0]


async def verified(store: SimulatedStore) -> Manifest:
    """The newest manifest, of which every byte is right."""
    manifest = await newest(store)
    assert manifest is not None
    await verify_partition(store, manifest)
    return manifest


async def contents(store: SimulatedStore, manifest: Manifest) -> bytes:
    """All batches of the archive from the one with its log start on."""
    reader, data, offset = PartitionReader(store, manifest), b"", manifest.log_start_offset
    while found := await reader.read(offset, 1 << 20):
        data += found
        *_, (_, last) = iter_batches(found)
        offset = last.next_offset
    return data
