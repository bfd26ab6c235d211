"""Compaction: the latest record of each key stays, at its offset; what it replaces goes.

`compact` walks records, so it runs in a process of its own: it takes a plan of plain values, reads the sealed
segments that the plan names and writes their replacements into the directory `cleaned` beside them. Nothing
that the broker uses changes; `swap` puts the result in place. First it learns the last offset of every key in
the dirty part of the log (as many keys as the plan allows, so memory is bounded), then it rewrites everything
up to there.

It keeps a key's latest record; tombstones and markers of emptied transactions until their delete horizon,
`delete.retention.ms` after the first pass that met them (KIP-534); the last batch of every known producer and
of the pass, if need be without records, because producer state and the log's end hang on them; batches whose
records cannot be read, as they are. A batch that fails its checksum stops the pass with `CorruptLog`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from errno import ENOENT
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.model.errors import CorruptMessage, RecordListTooLarge
from penstock.ports import Buffer, Files
from penstock.records.batch import BatchHeader, read_header
from penstock.records.record import Span
from penstock.storage.batch_filter import delete_horizon_ms, empty_batch, filter_batch, read_spans
from penstock.storage.batch_search import whole_batches
from penstock.storage.cleaned_transactions import CleanedTransactions
from penstock.storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from penstock.storage.memory import MemoryFiles
from penstock.storage.scan import CorruptLog
from penstock.storage.sealing import seal_segment
from penstock.storage.seals import ExpectedSeal, LogOwner
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG, OFFSET_INDEX, TIME_INDEX, file_name
from penstock.storage.swap import CLEANED, write_manifest
from penstock.storage.transactions import AbortedTransaction

__all__ = [
    "CompactionPlan",
    "CompactionResult",
    "LastRecord",
    "Source",
    "compact",
    "compact_copy",
    "copy_sources",
]

#: the files of a segment that are read
_READ: Final = (LOG, OFFSET_INDEX, TIME_INDEX)
#: How much to gather before it is written.
_WRITE_BYTES: Final = 1024 * 1024
#: How many offsets a segment may span: its indexes hold distances from its base in 31 bits.
_OFFSETS_MAX: Final = 2**31 - 1
#: Longer keys are known by a hash of this length, so that a key costs the same whatever its length.
_KEY_ID_BYTES: Final = 16


class Source(NamedTuple):
    """A sealed segment that may be compacted."""

    base_offset: int
    size: int


class LastRecord(NamedTuple):
    """The batch of an active producer that must stay."""

    #: last offset of its last batch, -1 if there is none in its epoch
    data_offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """The input of `compact`: segments and offsets of one moment of the log."""

    directory: str
    owner: LogOwner
    #: all segments below `end_offset`, in order
    sources: tuple[Source, ...]
    first_dirty_offset: int
    #: base offset of the first segment that must not be touched
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    #: every aborted transaction that reaches below `end_offset`
    aborted: tuple[AbortedTransaction, ...] = ()
    producers: Mapping[int, LastRecord]
    #: how many keys to hold in memory; a pass takes at least one batch, however many keys that has
    keys_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """The segments that `compact` has written to the directory `cleaned`, and those that they replace."""

    directory: str
    replaced: tuple[Source, ...]
    segments: tuple[Source, ...]
    #: below this, every key has one record (or none)
    clean_until: int
    bytes_before: int
    bytes_after: int
    #: batches that were kept because their records make no sense
    unreadable_batches: int
    #: base offsets and seals of `segments`
    seals: tuple[tuple[int, ExpectedSeal], ...]


def compact(files: Files, plan: CompactionPlan) -> CompactionResult:
    """Carry out `plan`; raises CorruptLog or OSError, and then leaves nothing behind."""
    target = f"{plan.directory}/{CLEANED}"
    _remove(files, target)
    if not files.is_dir(plan.directory):
        raise FileNotFoundError(ENOENT, "The log is gone", plan.directory)
    files.makedirs(target)
    try:
        return _Pass(files, plan, target).run()
    except BaseException:
        _remove(files, target)
        raise


def _remove(files: Files, directory: str) -> None:
    if files.is_dir(directory):
        files.rmtree(directory)


def copy_sources(files: Files, plan: CompactionPlan) -> dict[str, bytes]:
    """The files that `compact` reads, by name: for a process without access to `files`."""
    names = [f"{file_name(source.base_offset)}{suffix}" for source in plan.sources for suffix in _READ]
    return {
        name: files.read(f"{plan.directory}/{name}")
        for name in names
        if files.exists(f"{plan.directory}/{name}")
    }


def compact_copy(
    sources: dict[str, bytes], plan: CompactionPlan
) -> tuple[CompactionResult, dict[str, bytes]]:
    """`compact` over a copy of the segments; returns what belongs into the directory `cleaned`, too."""
    files = MemoryFiles()
    files.makedirs(plan.directory)
    for name, content in sources.items():
        files.write_atomic(f"{plan.directory}/{name}", content)
    result = compact(files, plan)
    target = f"{plan.directory}/{CLEANED}"
    return result, {name: files.read(f"{target}/{name}") for name in files.listdir(target)}


class _Pass:
    """One pass over one log."""

    __slots__ = ("_files", "_keys", "_plan", "_target", "_transactions", "clean_until", "unreadable_batches")

    def __init__(self, files: Files, plan: CompactionPlan, target: str) -> None:
        self._files = files
        self._plan = plan
        self._target = target
        self._keys: dict[bytes, int] = {}
        self._transactions = CleanedTransactions(plan.aborted, 0)
        self.clean_until = plan.first_dirty_offset
        self.unreadable_batches = 0

    def run(self) -> CompactionResult:
        plan = self._plan
        self.clean_until = self._learn_keys()
        sources = [source for source in plan.sources if source.base_offset < self.clean_until]
        cleaned = self._clean(sources)
        result = CompactionResult(
            directory=plan.directory,
            replaced=tuple(sources),
            segments=tuple(Source(segment.base_offset, segment.size) for segment in cleaned),
            clean_until=self.clean_until,
            bytes_before=sum(source.size for source in sources),
            bytes_after=sum(segment.size for segment in cleaned),
            unreadable_batches=self.unreadable_batches,
            seals=tuple((segment.base_offset, segment.seal) for segment in cleaned if segment.size),
        )
        write_manifest(self._files, self._target, [source.base_offset for source in sources])
        return result

    # -- learning

    def _learn_keys(self) -> int:
        """Fill `_keys` from the dirty part; returns the offset up to which it is complete."""
        plan = self._plan
        start = plan.first_dirty_offset
        transactions = CleanedTransactions(plan.aborted, start)
        keys = self._keys
        learnt_to = start
        for source, end in zip(plan.sources, _ends(plan.sources, plan.end_offset), strict=True):
            for batch, header in self._batches(source) if end > start else ():
                if header.last_offset < start:
                    continue
                if keys and len(keys) + header.record_count > plan.keys_max:
                    return learnt_to
                if not transactions.can_drop(batch, header) and not header.is_control:
                    self._learn(batch, header)
                learnt_to = header.next_offset
        return plan.end_offset

    def _learn(self, batch: Buffer, header: BatchHeader) -> None:
        try:
            _, spans = read_spans(batch)
        except (CorruptMessage, RecordListTooLarge):
            return
        base, keys = header.base_offset, self._keys
        for span in spans:
            if span.key is not None:
                keys[_key_id(span.key)] = base + span.offset_delta

    # -- rewriting

    def _clean(self, sources: Sequence[Source]) -> list[_CleanedSegment]:
        """Write what stays of `sources` into as few new segments as may hold it."""
        plan = self._plan
        cleaned: list[_CleanedSegment] = []
        ends = _ends(plan.sources, plan.end_offset)[: len(sources)]
        for source, end in zip(sources, ends, strict=True):
            index_bytes = _index_bytes(self._files, plan.directory, source)
            if not cleaned or not cleaned[-1].has_room(source.size, index_bytes, end):
                if cleaned:
                    cleaned[-1].finish(self._transactions.take_needed(), source.base_offset)
                cleaned.append(_CleanedSegment(self._files, self._target, source.base_offset, plan))
            for batch, header in self._batches(source):
                kept = self._retained(batch, header)
                if kept is not None:
                    cleaned[-1].add(kept)
        if cleaned:
            cleaned[-1].finish(self._transactions.take_needed(), ends[-1])
        return cleaned

    def _retained(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """The kept part of `batch`; None if nothing is kept."""
        plan = self._plan
        horizon_ms = delete_horizon_ms(header)
        horizon_passed = horizon_ms is not None and horizon_ms <= plan.now_ms
        unneeded = self._transactions.can_drop(batch, header)
        kept: Buffer | None = None
        if not unneeded or (header.is_control and not horizon_passed):
            kept = self._filtered(batch, header, horizon_passed, unneeded)
        if kept is None and self._must_stay(header):
            return empty_batch(header)
        return kept

    def _filtered(
        self, batch: Buffer, header: BatchHeader, horizon_passed: bool, start_horizon: bool
    ) -> Buffer | None:
        # Keys are learnt by whole batches, so a batch is on one side of `clean_until` or on the other.
        if header.base_offset >= self.clean_until:
            return batch
        plan = self._plan
        base, keys = header.base_offset, self._keys

        def keep(span: Span) -> bool:
            if header.is_control:
                return True
            if span.key is None or base + span.offset_delta < keys.get(_key_id(span.key), -1):
                return False
            return span.value_length >= 0 or not horizon_passed

        try:
            return filter_batch(
                batch,
                header,
                keep,
                new_horizon_ms=plan.now_ms + plan.delete_retention_ms,
                start_horizon=start_horizon,
            )
        except (CorruptMessage, RecordListTooLarge):
            self.unreadable_batches += 1
            return batch

    def _must_stay(self, header: BatchHeader) -> bool:
        if header.next_offset == self._plan.end_offset:
            return True
        last = self._plan.producers.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.epoch

    # -- reading

    def _batches(self, source: Source) -> Iterator[tuple[memoryview, BatchHeader]]:
        """The batches of `source`; CorruptLog if that is not all of it."""
        path = f"{self._plan.directory}/{file_name(source.base_offset)}{LOG}"
        sound_to = 0
        for position, fields, batch in whole_batches(self._files.open(path), 0, source.size):
            header = BatchHeader._make(fields)
            sound_to = position + header.size
            yield batch, header
        if sound_to != source.size:
            raise CorruptLog(f"{path}: the batch at byte {sound_to} is damaged")


class _CleanedSegment:
    """A new segment, from its first batch until all of it is on the disk."""

    __slots__ = ("_plan", "_segment", "_waiting", "_waiting_bytes")

    def __init__(self, files: Files, directory: str, base_offset: int, plan: CompactionPlan) -> None:
        self._segment = Segment.create(files, directory, base_offset, plan.now_ms)
        self._plan = plan
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0

    @property
    def base_offset(self) -> int:
        return self._segment.base_offset

    @property
    def size(self) -> int:
        return self._segment.size + self._waiting_bytes

    @property
    def seal(self) -> ExpectedSeal:
        return self._segment.expected_seal

    def has_room(self, size: int, index_bytes: int, end: int) -> bool:
        """Returns true if a segment of `size` bytes that ends before offset `end` fits as a whole."""
        self._write()
        plan, segment = self._plan, self._segment
        entries_bytes = max(
            OFFSET_ENTRY_BYTES * len(segment.offsets()), TIME_ENTRY_BYTES * len(segment.times())
        )
        return (
            segment.size + size <= plan.segment_bytes
            and entries_bytes + index_bytes <= plan.segment_index_bytes
            and (size == 0 or end - 1 - segment.base_offset <= _OFFSETS_MAX)
        )

    def add(self, batch: Buffer) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        if self._waiting_bytes > _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        segment, interval = self._segment, self._plan.index_interval_bytes
        position = segment.append(b"".join(self._waiting))
        for batch in self._waiting:
            header = read_header(batch)
            segment.index(position, header.size, header.last_offset, header.max_timestamp, interval)
            position += header.size
        self._waiting.clear()
        self._waiting_bytes = 0

    def finish(self, aborted: Iterable[AbortedTransaction], next_offset: int) -> None:
        """Bring the segment, which ends at `next_offset`, to the disk.

        `aborted` are the transactions whose abort markers it holds.
        """
        self._write()
        segment = self._segment
        for transaction in aborted:
            segment.transactions.add(transaction)
        unsynced = segment.save_indexes()
        unsynced.append(segment.mark_compacted(next_offset))
        seal = seal_segment(segment, segment.files, self._plan.owner, next_offset, None)
        if seal is not None:
            unsynced.append(seal)
        unsynced += [file for file in (segment.file, segment.transactions.file) if file is not None]
        for file in unsynced:
            file.sync()


def _key_id(key: bytes) -> bytes:
    """The key of the offset map: `key` itself, or a hash of a long key. Their lengths differ."""
    return key if len(key) < _KEY_ID_BYTES else blake2b(key, digest_size=_KEY_ID_BYTES).digest()


def _ends(sources: Sequence[Source], end_offset: int) -> list[int]:
    """The end offset of each of `sources`: the start of the next."""
    return [source.base_offset for source in sources[1:]] + [end_offset]


def _index_bytes(files: Files, directory: str, source: Source) -> int:
    paths = [f"{directory}/{file_name(source.base_offset)}{suffix}" for suffix in (OFFSET_INDEX, TIME_INDEX)]
    return max(files.size(path) if files.exists(path) else 0 for path in paths)
