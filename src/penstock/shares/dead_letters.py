"""Dead letters of a share partition (KIP-1191): records that name what could not be delivered, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.model.dead_letters import (
    DEAD_LETTER_DELIVERY_COUNT,
    DEAD_LETTER_GROUP,
    DEAD_LETTER_MESSAGE,
    DEAD_LETTER_OFFSET,
    DEAD_LETTER_PARTITION,
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_TOPIC,
)
from penstock.records.record import Record
from penstock.shares.partition import Undeliverable

__all__ = ["Source", "chunks", "dead_letters", "split_at"]

#: the most records of one batch, and the size from which on a batch gets no more records
_RECORDS_MAX: Final = 500
_BYTES_MAX: Final = 256 << 10


class Source(NamedTuple):
    """The share partition of dead letters."""

    group_id: str
    topic: str
    partition: int


def split_at(
    undeliverable: Sequence[Undeliverable], last: int
) -> tuple[list[Undeliverable], list[Undeliverable]]:
    """The offsets up to `last`, and those behind it."""
    before = [each._replace(last=min(each.last, last)) for each in undeliverable if each.first <= last]
    behind = [each._replace(first=max(each.first, last + 1)) for each in undeliverable if each.last > last]
    return before, behind


def dead_letters(
    source: Source, undeliverable: Iterable[Undeliverable], copies: Mapping[int, Record], now_ms: int
) -> Iterator[Record]:
    """The dead letters of offsets, with key, value and headers of those that are in `copies`.

    A record that was a dead letter before has its old headers replaced.
    """
    for each in undeliverable:
        for offset in range(each.first, each.last + 1):
            yield _dead_letter(source, each, offset, copies.get(offset), now_ms)


def _dead_letter(
    source: Source, undeliverable: Undeliverable, offset: int, copy: Record | None, now_ms: int
) -> Record:
    context = {
        DEAD_LETTER_TOPIC: source.topic,
        DEAD_LETTER_PARTITION: str(source.partition),
        DEAD_LETTER_OFFSET: str(offset),
        DEAD_LETTER_GROUP: source.group_id,
        DEAD_LETTER_DELIVERY_COUNT: str(undeliverable.delivery_count),
        DEAD_LETTER_MESSAGE: undeliverable.cause.value,
    }
    headers = tuple((name, text.encode()) for name, text in context.items())
    if copy is None:
        return Record(0, now_ms, None, None, headers)
    kept = tuple(header for header in copy.headers if not header[0].startswith(DEAD_LETTER_PREFIX))
    return Record(0, now_ms, copy.key, copy.value, kept + headers)


def chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The records of each batch, with their offsets in it."""
    chunk: list[Record] = []
    size = 0
    for record in records:
        if chunk and (len(chunk) >= _RECORDS_MAX or size >= _BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(record._replace(offset=len(chunk)))
        size += len(record.key or b"") + len(record.value or b"")
    if chunk:
        yield chunk
