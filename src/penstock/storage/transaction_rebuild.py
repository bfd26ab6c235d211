"""Rebuilds the producers and the transaction indexes of a log after damaged batches were replaced.

Recovery after a crash reads a log without its damaged batches. A transaction whose marker is damaged stays
open. An aborted transaction whose records are damaged has no entry in the transaction index, so that readers
of committed records would read them after the repair. Therefore the log is replayed from the segment of the
repaired range on, before the range is served again.

`replay` reads and writes files, in a worker thread. All other methods belong to the event loop. Replaced
files are written beside the old ones and renamed by `install`, because the log may be truncated meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.ports import File, Files
from penstock.records.batch import CONTROL_BIT, LOG_OVERHEAD, TRANSACTIONAL_BIT
from penstock.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    PRODUCER_ID,
)
from penstock.storage.log import Log
from penstock.storage.producer_loading import load_producers, snapshots_in
from penstock.storage.producers import ProducerStates
from penstock.storage.recovery import replay_batch
from penstock.storage.recovery_report import Corruption
from penstock.storage.scan import CorruptLog, scan
from penstock.storage.sealing import unseal
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG, SNAPSHOT, TRANSACTION_INDEX, Damage, file_name
from penstock.storage.segments import Segments
from penstock.storage.snapshot import encode_snapshot
from penstock.storage.transactions import AbortedTransaction, encode_entries

__all__ = ["SegmentBytes", "TransactionRebuild", "has_lost_batches", "producer_ends"]

#: suffix of files that wait for their renaming; opening a log removes what a crash left of them
_PREPARED: Final = ".tmp"
#: `install` replays up to this many bytes in the event loop's thread: they were just appended
_REST_BYTES_MAX: Final = 256 << 10


class SegmentBytes(NamedTuple):
    """A segment as of one moment: the bytes to replay."""

    base_offset: int
    size: int
    damage: tuple[Damage, ...]


def producer_ends(log: Log) -> dict[int, int] | None:
    """The last offset of each producer that has written to the log; None if no batch can be missing here.

    A log that was closed cleanly has a complete snapshot of its producers.
    """
    if log.recovery.clean:
        return None
    return {
        producer_id: state.batches[-1].last_offset
        for producer_id, state in log.producers.items()
        if state.batches
    }


def has_lost_batches(files: Files, path: str, position: int, end: int, ends: dict[int, int] | None) -> bool:
    """Returns true if replaced bytes have batches that the state of the producers may lack.

    Reads the file. `ends` is the result of `producer_ends`. Batches of transactions always count: a clean
    shutdown may have saved a state that lacks them.
    """
    for _, header in scan(files.open(path), position, end):
        if header[PRODUCER_ID] < 0:
            continue
        if header[ATTRIBUTES] & (TRANSACTIONAL_BIT | CONTROL_BIT):
            return True
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        if ends is not None and ends.get(header[PRODUCER_ID], -1) < last_offset:
            return True
    return False


class TransactionRebuild:
    """One rebuild of a log: `remaining` and `replay` in turns until `is_close`, then `install`.

    Invariant: nothing of the log changes before `install`.
    """

    __slots__ = (
        "_base_offset",
        "_damage",
        "_entries",
        "_files",
        "_former",
        "_indexed",
        "_owner",
        "_path",
        "_position",
        "_producers",
        "_renames",
        "_repaired",
        "_unknown",
        "first_offset",
    )

    def __init__(self, log: Log, files: Files, first_offset: int, repaired: Corruption | None) -> None:
        """`repaired` is known damage whose bytes are sound again."""
        self._files = files
        self._path = log.path
        self._owner = log.owner
        self.first_offset = first_offset
        self._repaired = repaired
        #: a truncation replaces this object
        self._former = log.producers
        #: the segment that is being replayed, and how far
        self._base_offset = log.segments.holding(first_offset).base_offset
        self._position = 0
        self._producers: ProducerStates | None = None
        #: the aborted transactions that end in the segment that is being replayed
        self._entries: list[AbortedTransaction] = []
        #: other damage: what the report of the log lists, and what the replay has met
        self._damage: list[Corruption] = []
        self._unknown: list[Corruption] = []
        #: prepared files and their final names
        self._renames: list[tuple[str, str]] = []
        #: base offsets of sealed segments whose index is replaced
        self._indexed: list[int] = []

    def is_current(self, log: Log) -> bool:
        """Returns false after a truncation: the rebuild has to begin again."""
        return log.producers is self._former

    def is_close(self, log: Log) -> bool:
        """Returns true if few bytes were appended since the last replay."""
        pending = self._segments(log)
        return sum(segment.size for segment in pending) - self._position <= _REST_BYTES_MAX

    def remaining(self, log: Log) -> list[SegmentBytes]:
        """The segments that have bytes to replay, the first of them perhaps in part."""
        self._damage = [damage for damage in log.recovery.corruption if damage != self._repaired]
        return self._bytes_of(self._segments(log))

    def before(self, log: Log) -> list[SegmentBytes]:
        """The segments in front of those."""
        return self._bytes_of(each for each in log.segments if each.base_offset < self._base_offset)

    def _bytes_of(self, segments: Iterable[Segment]) -> list[SegmentBytes]:
        return [
            SegmentBytes(segment.base_offset, segment.size, self._unrepaired(segment)) for segment in segments
        ]

    def _segments(self, log: Log) -> list[Segment]:
        return log.segments.since(self._base_offset)

    def _unrepaired(self, segment: Segment) -> tuple[Damage, ...]:
        repaired = self._repaired
        if repaired is None or segment.path(LOG) != repaired.path:
            return tuple(segment.damage)
        return tuple(damage for damage in segment.damage if damage.position != repaired.position)

    def replay(self, segments: Sequence[SegmentBytes], before: Sequence[SegmentBytes]) -> None:
        """Replay `segments`; `before` are those in front of them, for the first call."""
        if self._producers is None:
            self._producers = self._load(segments[0].base_offset, [*before, *segments])
        for nth, each in enumerate(segments):
            segment = self._open(each)
            if each.base_offset != self._base_offset:
                self._base_offset, self._position, self._entries = each.base_offset, 0, []
                self._prepare_snapshot(each.base_offset)
            self._walk(segment, self._position)
            self._position = each.size
            if nth + 1 < len(segments):
                self._prepare_index(segment)
            segment.release()

    def _open(self, each: SegmentBytes) -> Segment:
        segment = Segment(self._files, self._path, each.base_offset, each.size, 0)
        segment.damage = list(each.damage)
        return segment

    def _load(self, base_offset: int, segments: Iterable[SegmentBytes]) -> ProducerStates:
        """The producers at the start of the first segment to replay."""
        opened = Segments([self._open(each) for each in segments])
        snapshots = [
            offset for offset in snapshots_in(self._files.listdir(self._path)) if offset <= base_offset
        ]
        return load_producers(opened, snapshots, base_offset, self._files, self._path, self._owner)

    def _walk(self, segment: Segment, position: int) -> None:
        producers = self._producers
        assert producers is not None, "the producers are loaded before the first walk"
        file = segment.open_file()
        try:
            for start, header in segment.scan(position):
                size = header[BATCH_LENGTH] + LOG_OVERHEAD if header[ATTRIBUTES] & CONTROL_BIT else 0
                aborted = replay_batch(producers, header, file.pread(size, start))
                if aborted is not None:
                    self._entries.append(aborted)
        except CorruptLog:
            # Damage that is not known yet. Its repair replays the log again.
            path, end = segment.path(LOG), producers.end_offset
            self._unknown.append(Corruption(path, 0, 0, end, end + 1))

    def _prepare_snapshot(self, offset: int) -> None:
        """Replace the snapshot at the start of a segment: it was written without the repaired batches."""
        path = f"{self._path}/{file_name(offset)}{SNAPSHOT}"
        if self._files.exists(path):
            assert self._producers is not None, "the producers are loaded before the first walk"
            self._prepare(path, encode_snapshot(self._producers.states, self._owner, offset))

    def _prepare_index(self, segment: Segment) -> None:
        """Replace the index of a sealed segment if it differs."""
        known = segment.transactions.entries()
        entries = self._merged(known)
        if entries != known:
            self._prepare(segment.path(TRANSACTION_INDEX), encode_entries(entries))
            self._indexed.append(segment.base_offset)

    def _merged(self, known: Iterable[AbortedTransaction]) -> list[AbortedTransaction]:
        """The replayed entries, and the known ones that cannot be replayed because of other damage."""
        merged = {
            aborted.last_offset: aborted
            for aborted in known
            if any(d.first_offset <= aborted.last_offset for d in (*self._damage, *self._unknown))
        }
        merged |= {aborted.last_offset: aborted for aborted in self._entries}
        return [merged[offset] for offset in sorted(merged)]

    def _prepare(self, path: str, content: bytes) -> None:
        prepared = path + _PREPARED
        file = self._files.open(prepared, create=True)
        file.truncate(0)
        file.append(content)
        file.sync()
        file.close()
        self._renames.append((prepared, path))

    def differs(self, log: Log) -> bool:
        """Returns true if the log's indexes or producers are not those that its batches lead to.

        Transactions and producers whose records retention has removed do not count, nor do producers that
        have expired. Replays the rest, as `install` does.
        """
        self.replay(self.remaining(log), ())
        producers, start = self._producers, log.segments.first.base_offset
        assert producers is not None, "`replay` was called before"
        active = log.segments.active.transactions.entries()
        if self._indexed or (
            log.segments.active.base_offset == self._base_offset and self._merged(active) != active
        ):
            return True
        if not set(producers.ongoing.values()) <= set(log.producers.ongoing.values()):
            return True
        return any(
            not state.agrees_with(producers.states.get(producer_id))
            for producer_id, state in log.producers.items()
            if state.batches and state.batches[-1].last_offset >= start
        )

    def abandon(self) -> None:
        """Remove the prepared files."""
        for prepared, _ in self._renames:
            self._files.remove(prepared)

    def install(self, log: Log) -> list[File]:
        """Replay the rest, and let the log use the result; returns the files to sync before its directory."""
        assert self.is_current(log), "the log was truncated"
        self.replay(self.remaining(log), ())
        producers = self._producers
        assert producers is not None, "`replay` was called before"
        for name in snapshots_in(self._files.listdir(self._path)):
            path = f"{self._path}/{file_name(name)}{SNAPSHOT}"
            if name > self.first_offset and all(path != final for _, final in self._renames):
                self._files.remove(path)
        # The files that the seals name change. `sealing.seal_again` follows.
        unseal(self._files, log.segments.since(self.first_offset))
        for prepared, path in self._renames:
            self._files.rename(prepared, path)
        for segment in log.segments:
            if segment.base_offset in self._indexed:
                segment.transactions.reload()
        changed = self._install_last(log.segments.active)
        # The list of segments with aborted transactions is made anew.
        log.segments.replace([], [])
        producers.end_offset = log.end_offset
        producers.guards = self._former.guards
        producers.had_transactions |= self._former.had_transactions
        producers.replicated_to(log.high_watermark)
        log.producers = producers
        return changed

    def _install_last(self, active: Segment) -> list[File]:
        """Write the index of the last segment, which a start after a crash would recover anyway."""
        if active.base_offset != self._base_offset:
            return []
        entries = self._merged(active.transactions.entries())
        if entries == active.transactions.entries():
            return []
        return [active.transactions.rewrite(entries)]
