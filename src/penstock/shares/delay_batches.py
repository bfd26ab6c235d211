"""The batches of a delay partition: what a read of its log contains, and the batches for the target.

Like a `read_committed` consumer, a mover does not see messages of aborted transactions. A batch with a wrong
checksum raises CorruptMessage: another replica has the batch. A batch whose records a producer has built
wrongly cannot be read anywhere, and is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.model.delays import DELIVER_AT_HEADER
from penstock.model.errors import CorruptMessage, RecordListTooLarge
from penstock.records.batch import HEADER_SIZE, BatchHeader, crc_matches
from penstock.records.codecs import Codec
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.shares.delay_log import Done, Plan, parse_progress
from penstock.shares.delay_schedule import due_ms

__all__ = ["Aborted", "Delayed", "LogPart", "batch_for", "divided", "parse_log", "pick"]

#: (producer id, first offset) of aborted transactions
Aborted: TypeAlias = Sequence[tuple[int, int]]
#: the most bytes of a record beside its key, value and headers, and of a header beside its name and value
_RECORD_OVERHEAD: Final = 40
_HEADER_OVERHEAD: Final = 10


class LogPart(NamedTuple):
    """The content of consecutive batches of a delay partition."""

    #: offsets and delivery times
    messages: list[tuple[int, int]]
    #: with their offsets
    progress: list[tuple[int, Plan | Done]]
    #: first offsets of batches whose records cannot be read
    unreadable: list[int]
    #: behind the last batch
    end: int


class Delayed(NamedTuple):
    """A message of a delay partition."""

    record: Record
    #: of the batch that it came in
    codec: Codec

    @property
    def bytes_max(self) -> int:
        """A bound of its size in a batch without compression."""
        record = self.record
        headers = sum(
            len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD for name, value in record.headers
        )
        return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_OVERHEAD


def parse_log(data: bytes, aborted: Aborted, end: int) -> LogPart:
    """Messages and progress in `data`. `end` is the result's end if no batch is complete."""
    messages: list[tuple[int, int]] = []
    progress: list[tuple[int, Plan | Done]] = []
    unreadable: list[int] = []
    for position, header in _without_aborted(data, aborted):
        batch = data[position : position + header.size]
        if header.is_control:
            _check(batch, header)
            found = parse_progress(batch)
            if found is not None:
                progress.append((header.base_offset, found))
            continue
        records = _records(batch, header)
        if records is None:
            unreadable.append(header.base_offset)
        else:
            messages += [(record.offset, due_ms(record)) for record in records]
    end = max((header.next_offset for _, header in iter_batches(data)), default=end)
    return LogPart(messages, progress, unreadable, end)


def _records(batch: bytes, header: BatchHeader) -> list[Record] | None:
    """The records of a batch; None if they cannot be read."""
    _check(batch, header)
    try:
        return list(iter_records(batch))
    except (CorruptMessage, RecordListTooLarge):
        return None


def _check(batch: bytes, header: BatchHeader) -> None:
    if not crc_matches(batch, header):
        raise CorruptMessage(f"The checksum of the batch at offset {header.base_offset} does not match")


def _without_aborted(data: bytes, aborted: Aborted) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches that are not part of an aborted transaction."""
    begins = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
    open_aborts: set[int] = set()
    for position, header in iter_batches(data):
        while begins and begins[-1][0] <= header.last_offset:
            open_aborts.add(begins.pop()[1])
        if header.is_control:
            open_aborts.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in open_aborts:
            continue
        yield position, header


def pick(data: bytes, offsets: Collection[int]) -> dict[int, Delayed]:
    """The messages with these offsets in the batches of `data`."""
    found: dict[int, Delayed] = {}
    last = max(offsets)
    for position, header in iter_batches(data):
        if header.base_offset > last:
            break
        if header.is_control or not any(o in offsets for o in range(header.base_offset, header.next_offset)):
            continue
        codec = Codec(header.compression)
        for record in _records(data[position : position + header.size], header) or ():
            if record.offset in offsets:
                found[record.offset] = Delayed(record, codec)
    return found


def divided(
    messages: Mapping[int, Delayed],
    partition_of: Callable[[Record], int],
    is_alone: Callable[[int], bool],
    bytes_max: int,
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Partitions of the target, and the offsets of the messages of one batch for each.

    A batch has up to `bytes_max` bytes, or one message.
    """
    by_partition: dict[int, list[int]] = {}
    for offset, message in messages.items():
        by_partition.setdefault(partition_of(message.record), []).append(offset)
    for partition, offsets in by_partition.items():
        batch: list[int] = []
        size = HEADER_SIZE
        for offset in offsets:
            added = messages[offset].bytes_max
            alone = is_alone(offset)
            if batch and (alone or size + added > bytes_max):
                yield partition, tuple(batch)
                batch, size = [], HEADER_SIZE
            batch.append(offset)
            size = bytes_max if alone else size + added
        yield partition, tuple(batch)


def batch_for(plan: Plan, messages: Iterable[Delayed], bytes_max: int, now_ms: int) -> bytes:
    """The batch of a plan. A message that is too large for the target keeps the codec of its producer."""
    chosen = list(messages)
    moved = [
        message.record._replace(
            offset=n,
            timestamp=now_ms,
            headers=tuple(header for header in message.record.headers if header[0] != DELIVER_AT_HEADER),
        )
        for n, message in enumerate(chosen)
    ]
    codec = Codec.NONE
    if len(chosen) == 1 and HEADER_SIZE + chosen[0].bytes_max > bytes_max:
        codec = chosen[0].codec
    return build_batch(
        moved,
        codec=codec,
        producer_id=plan.producer_id,
        producer_epoch=0,
        base_sequence=plan.sequence,
    )
