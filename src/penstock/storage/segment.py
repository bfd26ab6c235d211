"""One segment of a log: a file of batches, and the indexes that find an offset or a timestamp in it.

All segments but the last are sealed: they never grow, and their index files are complete. The descriptor and
the indexes of a sealed segment may be dropped at any time; the next use loads them again. The last segment's
indexes are in memory and are written when it is sealed or closed, because they can be rebuilt.

With `cached_only` reads raise `ColdPages` instead of waiting for the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from penstock.ports import Buffer, File, Files
from penstock.records.batch import LOG_OVERHEAD
from penstock.records.header_fields import BASE_OFFSET, BATCH_LENGTH, LAST_OFFSET_DELTA, MAX_TIMESTAMP
from penstock.storage.chain import CheckedRanges
from penstock.storage.index import RELATIVE_MAX, TIME_ENTRY_BYTES, IndexDamaged, OffsetIndex, TimeIndex
from penstock.storage.index_files import (
    add_last_batch,
    newest_timestamp,
    read_indexes,
    write_indexes,
)
from penstock.storage.scan import ColdIndexes, CorruptLog, find_batch, scan
from penstock.storage.seals import ANY_SEAL
from penstock.storage.segment_files import (
    COMPACTED,
    LOG,
    TRANSACTION_INDEX,
    Coverage,
    Damage,
    file_name,
    read_marker,
    write_marker,
)
from penstock.storage.transactions import TransactionIndex

__all__ = ["NOT_WORKED_OUT", "NO_TAIL", "Segment"]

#: below every timestamp
NOT_WORKED_OUT: Final = -(2**63)
_ENTRIES_MAX: Final = 2**31
#: How many of the latest batches the last segment finds without its index, at least; bounds memory.
_RECENT_BATCHES: Final = 32
#: the position of no batch
NO_TAIL: Final = -1


class Segment:
    """The batches from `base_offset` on, up to the base offset of the next segment.

    Why it has more than 25 methods: file and indexes of a segment change together, are loaded on demand and
    dropped when other segments need the memory. Every method keeps them in agreement.
    """

    __slots__ = (
        "_entries_max",
        "_max_timestamp",
        "_max_timestamp_end",
        "_offsets",
        "_path",
        "_times",
        "base_offset",
        "checked",
        "created_ms",
        "damage",
        "expected_seal",
        "file",
        "files",
        "first_timestamp",
        "full",
        "index_checksums",
        "indexes_saved",
        "known_tail",
        "rebuilt",
        "recent",
        "roll_beyond",
        "size",
        "size_found",
        "transactions",
        "unindexed_bytes",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, size: int, created_ms: int) -> None:
        self.files = files
        self._path = f"{directory}/{file_name(base_offset)}"
        self.base_offset = base_offset
        self.size = size
        #: bytes that were there before this process wrote any: nothing says that they are in memory
        self.size_found = size
        #: the part of these bytes whose batches are known to follow each other
        self.checked: CheckedRanges | None = None
        self.created_ms = created_ms
        #: largest timestamp of the first batch, which time-based rolling counts from; None if not known yet
        self.first_timestamp: int | None = None
        #: the largest timestamp and the last offset of its batch; None if not known yet
        self._max_timestamp: int | None = None
        self._max_timestamp_end = base_offset
        self.file: File | None = None
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        #: the result of `ColdIndexes.warm` for the next use: this segment with indexes, or the error
        self.rebuilt: Segment | CorruptLog | None = None
        self.transactions = TransactionIndex(files, self._path + TRANSACTION_INDEX)
        self.expected_seal = ANY_SEAL
        self._entries_max = _ENTRIES_MAX
        #: true if the indexes have as many entries as they may
        self.full = False
        #: true if the index files have all entries in memory
        self.indexes_saved = True
        #: of the offset and the time index, if this process has written their files
        self.index_checksums: tuple[int, int] | None = None
        #: where a batch near the end starts, by the manifest or by the index; -1 if that is not known
        self.known_tail = NO_TAIL
        #: the largest timestamp that does not make the segment roll, once it is known
        self.roll_beyond = NOT_WORKED_OUT
        #: base offset -> position, of the latest batches; the log adds each that it appends
        self.recent: dict[int, int] = {}
        self.unindexed_bytes = 0
        #: damaged ranges that recovery has found, in order
        self.damage: list[Damage] = []

    @classmethod
    def create(cls, files: Files, directory: str, base_offset: int, now_ms: int) -> Segment:
        """A new, empty segment; replaces files of these names, left by a segment that was never used."""
        segment = cls(files, directory, base_offset, 0, now_ms)
        segment.transactions.clear()
        segment.start_indexes()
        file = segment.file = files.open(segment.path(LOG), create=True)
        if file.size():
            file.truncate(0)
        return segment

    def path(self, suffix: str) -> str:
        return self._path + suffix

    def mark_compacted(self, next_offset: int | None = None) -> File:
        """Declare that offsets may be missing; lasts once the file and its directory are synced.

        `next_offset` is where a segment that is sealed, and has its final size, ends.
        """
        coverage = None if next_offset is None else Coverage(next_offset, self.size)
        return write_marker(self.files, self._path + COMPACTED, coverage)

    def coverage(self) -> Coverage | None:
        """The content of the marker of a compacted segment; None if it is empty."""
        return read_marker(self.files, self._path + COMPACTED)

    @property
    def is_compacted(self) -> bool:
        return self.files.exists(self._path + COMPACTED)

    # -- open file and loaded indexes

    def open_file(self) -> File:
        file = self.file
        if file is None:
            file = self.file = self.files.open(self._path + LOG)
        return file

    def release(self) -> None:
        """Drop the open file and the indexes; the next use loads them again."""
        self.close_file()
        self.drop_indexes()

    def close_file(self) -> None:
        """Let go of the file; a range that is being sent keeps its descriptor until it is done."""
        self.file = None

    def drop_indexes(self) -> None:
        """Forget the indexes, if their files have them."""
        if self.indexes_saved:
            self.known_tail = self.tail()
            self._offsets = self._times = None

    def tail(self) -> int:
        """The position of a batch near the end, without reading the index file; -1 if it is not known."""
        if self._offsets is None:
            return self.known_tail
        return self._offsets.positions[-1] if self._offsets.positions else 0

    @property
    def index_entries(self) -> int:
        """How much memory the indexes take, in entries."""
        offsets, times = self._offsets, self._times
        return (0 if offsets is None else len(offsets.ends)) + (0 if times is None else len(times.ends))

    def offsets(self, cached_only: bool = False) -> OffsetIndex:
        if self._offsets is None:
            self._load_indexes(cached_only)
            assert self._offsets is not None
        return self._offsets

    def times(self, cached_only: bool = False) -> TimeIndex:
        if self._times is None:
            self._load_indexes(cached_only)
            assert self._times is not None
        return self._times

    def _load_indexes(self, cached_only: bool) -> None:
        try:
            place = self.files, self._path, self.open_file, self.base_offset, self.size
            self._offsets, self._times = read_indexes(*place, self.expected_seal, cached_only)
        except (IndexDamaged, FileNotFoundError):
            self._renew_indexes(cached_only)
        else:
            self.unindexed_bytes = self.size - self.tail()

    def distrust_indexes(self, cached_only: bool = False) -> None:
        """Replace indexes that contradict the batches; CorruptLog if the batches cannot be read."""
        self._max_timestamp = self._offsets = self._times = None
        self._renew_indexes(cached_only)

    def _renew_indexes(self, cached_only: bool) -> None:
        if cached_only:
            self._adopt_indexes()
        else:
            self.rebuild_indexes()

    def _adopt_indexes(self) -> None:
        """Take over the indexes that a worker thread has rebuilt, or have it rebuild them."""
        rebuilt, self.rebuilt = self.rebuilt, None
        if isinstance(rebuilt, CorruptLog):
            raise rebuilt
        if rebuilt is None or rebuilt.size != self.size:
            directory = self._path.rpartition("/")[0]
            # The event loop owns this segment: the worker thread works on a twin.
            twin = Segment(self.files, directory, self.base_offset, self.size, 0)
            raise ColdIndexes(twin.open_file(), twin.size, lambda: self._rebuild_in(twin))
        self._offsets, self._times = rebuilt._offsets, rebuilt._times
        self._max_timestamp, self._max_timestamp_end = rebuilt._max_timestamp, rebuilt._max_timestamp_end
        self.first_timestamp = rebuilt.first_timestamp
        self.unindexed_bytes = rebuilt.unindexed_bytes
        self.indexes_saved = False

    def _rebuild_in(self, twin: Segment) -> None:
        try:
            twin.rebuild_indexes()
        except CorruptLog as e:
            self.rebuilt = e
        else:
            self.rebuilt = twin

    # -- indexes from batches

    def start_indexes(self) -> None:
        """Empty indexes, to be filled by `index` in the order of the batches."""
        self._offsets = OffsetIndex()
        self._times = TimeIndex()
        self._max_timestamp = -1
        self._max_timestamp_end = self.base_offset
        self.first_timestamp = None
        self.unindexed_bytes = 0
        self.indexes_saved = False
        self.recent.clear()

    def rebuild_indexes(self, interval: int = 4096) -> None:
        """Index every batch of the file that has a place in it.

        No checksum covers a batch's base offset, so a damaged one may name any.
        """
        self.start_indexes()
        for position, header in scan(self.open_file(), 0, self.size):
            last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            if 0 <= last_offset - self.base_offset <= RELATIVE_MAX:
                size = header[BATCH_LENGTH] + LOG_OVERHEAD
                self.index(position, size, last_offset, header[MAX_TIMESTAMP], interval)
        # As in a segment that was sealed: its last entry has its largest timestamp.
        self.times().add(self.max_timestamp(), self._max_timestamp_end - self.base_offset)

    def index(self, position: int, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Note the batch at `position`, which must be behind everything noted before."""
        if position == 0:
            self.first_timestamp = max_timestamp
        largest = self._max_timestamp
        if largest is None:
            largest = self.max_timestamp()
        if max_timestamp > largest:
            self._max_timestamp = max_timestamp
            self._max_timestamp_end = last_offset
        unindexed = self.unindexed_bytes
        if unindexed > interval:
            base = self.base_offset
            self.offsets().add(last_offset - base, position)
            self.times().add(self.max_timestamp(), self._max_timestamp_end - base)
            self.full = len(self.offsets()) >= self._entries_max
            unindexed = 0
            if len(self.recent) > 2 * _RECENT_BATCHES:
                # Rarely, and then many at once.
                self.recent = dict(islice(self.recent.items(), _RECENT_BATCHES, None))
        self.unindexed_bytes = unindexed + size

    def max_timestamp(self, cached_only: bool = False) -> int:
        """The largest timestamp in the segment, -1 if there is none."""
        if self._max_timestamp is None:
            times = self._times
            if times is None:
                place = self.files, self._path, self.base_offset, self.size
                times = newest_timestamp(*place, self.expected_seal, cached_only)
            if not times and self.size:
                times = self.times(cached_only)
            self._max_timestamp, end = times.last()
            self._max_timestamp_end = self.base_offset + end
        return self._max_timestamp

    @property
    def max_timestamp_end(self) -> int:
        """The last offset of the batch that has `max_timestamp`; valid after a call of that."""
        return self._max_timestamp_end

    def save_indexes(self) -> list[File]:
        """Bring the index files up to date; returns the files that must be synced."""
        if self.indexes_saved:
            return []
        offsets, times = self.offsets(), self.times()
        if self.size:
            add_last_batch(offsets, self.base_offset, self.scan)
        times.add(self.max_timestamp(), self._max_timestamp_end - self.base_offset)
        written, self.index_checksums = write_indexes(self.files, self._path, offsets, times)
        self.indexes_saved = True
        return written

    def limit_indexes(self, bytes_max: int) -> None:
        """Have `full` say when an index file reaches `bytes_max`; one time entry is kept for the seal."""
        # There are never more time entries than offset entries, and they are the larger ones.
        self._entries_max = max(bytes_max // TIME_ENTRY_BYTES - 1, 1)
        is_full = self._offsets is not None and len(self._offsets) >= self._entries_max
        self.full = is_full or not self.files.takes_appends(self._path + LOG)

    # -- the segment itself

    def append(self, data: Buffer) -> int:
        """Write whole batches at the end; returns where they start. They are to be `index`ed next."""
        if self._offsets is None:
            # The entries of the index files have to be in memory before new ones are added.
            self.offsets()
        position = self.size
        (self.file or self.open_file()).append(data)
        self.size = position + len(data)
        self.indexes_saved = False
        return position

    def find(self, offset: int, cached_only: bool = False) -> int:
        """The position of the first batch that reaches `offset`; the segment's size if none does."""
        position = self.recent.get(offset)
        if position is not None:
            return position
        offsets = self._offsets
        if offsets is None:
            offsets = self.offsets(cached_only)
        start, upper = offsets.bracket(offset - self.base_offset, self.size)
        file = self.file or self.open_file()
        for damage in self.damage:
            if start <= damage.position < upper:
                position = find_batch(file, start, damage.position, offset, cached_only)
                if position < damage.position or offset < damage.next_offset:
                    return position
                start = damage.end
        return find_batch(file, start, upper, offset, cached_only)

    def scan(self, position: int, cached_only: bool = False) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(position, header fields) of the sound batches from `position` on."""
        file = self.open_file()
        for damage in self.damage:
            if position <= damage.position:
                yield from scan(file, position, damage.position, cached_only)
                position = damage.end
        yield from scan(file, position, self.size, cached_only)

    def cut(self, position: int, offset: int) -> None:
        """Cut the file at `position`, where the batch of `offset` starts."""
        offsets, times = self.offsets(), self.times()
        self.open_file().truncate(position)
        self.size = position
        self.checked, self.size_found = None, min(self.size_found, position)
        self.known_tail = NO_TAIL
        self.expected_seal = self.expected_seal.forgotten()
        offsets.cut(offset - self.base_offset)
        times.cut(offset - self.base_offset)
        self.transactions.cut(offset)
        self.indexes_saved = False
        self.recent.clear()
        self.unindexed_bytes = position - self.tail()
        self._max_timestamp = None
        if not position:
            self.first_timestamp = None
        self._refresh_max_timestamp()

    def _refresh_max_timestamp(self) -> None:
        """After a cut the last time entry may miss batches behind it: look at those."""
        largest = self.max_timestamp()
        start, _ = self.offsets().bracket(self._max_timestamp_end - self.base_offset, self.size)
        for _, header in self.scan(start):
            if header[MAX_TIMESTAMP] > largest:
                largest = self._max_timestamp = header[MAX_TIMESTAMP]
                self._max_timestamp_end = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
