"""Acquired records of a ShareFetch response as messages."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from penstock.client.queues.message import Decoders, Locks, QueueMessage, RawRecord, TopicIdPartition
from penstock.client.queues.outcomes import Outcome
from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.batch import BatchHeader, crc_matches
from penstock.records.record import Record, iter_batches, iter_records
from penstock.wire.apis.share_fetch import AcquiredRecords

__all__ = ["Acquired", "acquired_messages"]

_log = logging.getLogger("penstock.client")


class Acquired(NamedTuple):
    """Messages of one partition, and the outcomes of acquired offsets that have none."""

    messages: list[QueueMessage]
    outcomes: dict[int, Outcome]


def acquired_messages(
    topic: str,
    place: TopicIdPartition,
    data: Buffer,
    ranges: Sequence[AcquiredRecords],
    decoders: Decoders,
    locks: Locks,
) -> Acquired:
    """The messages of acquired offsets, in their order.

    `data` has whole batches: records that were not acquired are left out. An acquired offset without a record
    is a gap. An offset of a damaged batch is rejected, and one that the response does not reach is released.
    """
    counts = {
        offset: acquired.delivery_count
        for acquired in ranges
        for offset in range(acquired.first_offset, acquired.last_offset + 1)
    }
    messages: list[QueueMessage] = []
    damaged: list[BatchHeader] = []
    end = -1
    for header, records in _batches(data, damaged, counts, f"{topic}-{place.partition}"):
        end = header.next_offset
        append_time = header.is_log_append_time
        for record in records:
            raw = RawRecord(topic, place.partition, record, append_time)
            messages.append(QueueMessage(raw, decoders, place, counts.pop(record.offset), locks))
    end = max([end, *(header.next_offset for header in damaged)])
    outcomes = {
        offset: Outcome.REJECT
        if any(header.base_offset <= offset <= header.last_offset for header in damaged)
        else (Outcome.GAP if offset < end else Outcome.RELEASE)
        for offset in counts
    }
    return Acquired(messages, outcomes)


def _batches(
    data: Buffer, damaged: list[BatchHeader], wanted: Collection[int], name: str
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Batches with their records of the `wanted` offsets; control batches have none.

    A damaged batch goes to `damaged` instead.
    """
    view = memoryview(data)
    try:
        for position, header in iter_batches(view):
            batch = view[position : position + header.size]
            try:
                if not crc_matches(batch, header):
                    raise CorruptMessage("the checksum does not match")
                records = (
                    []
                    if header.is_control
                    else [record for record in iter_records(batch) if record.offset in wanted]
                )
            except CorruptMessage as e:
                _log.warning("records of %s from offset %d are damaged: %s", name, header.base_offset, e)
                damaged.append(header)
            else:
                yield header, records
    except CorruptMessage as e:
        _log.warning("records of %s are damaged: %s", name, e)
