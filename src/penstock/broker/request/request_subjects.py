"""The partitions and offsets that a request has written or read, for the log of slow requests and spans.

Only the headers of batches are read, and the headers of one record for a span (`traceparent`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Any, Final

from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_table import Slot
from penstock.model.errors import ApiError
from penstock.model.ids import TopicId
from penstock.observability.requests import PARTITIONS_MAX, PartitionRange
from penstock.records.batch import HEADER_SIZE
from penstock.records.trace_context import SEARCHED_BYTES_MAX, first_traceparent
from penstock.storage.scan import ColdPages
from penstock.wire.apis.fetch import FetchRequest, FetchResponse
from penstock.wire.apis.produce import ProduceRequest, TopicProduceResponse

__all__ = ["Counts", "Subjects", "produce_counts"]

#: record counts of a Produce request's batches by (topic name or id, partition)
Counts = dict[tuple[str | TopicId, int], int]
_count_at: Final = Struct(">i").unpack_from
_COUNT_POSITION: Final = 57
_length_at: Final = Struct(">qi").unpack_from
_last_delta_at: Final = Struct(">i").unpack_from
_LAST_DELTA_POSITION: Final = 23
_OVERHEAD: Final = 12


def produce_counts(request: ProduceRequest) -> Counts:
    """The numbers of records by the headers of the batches, which are valid only while a frame is served."""
    counts: Counts = {}
    for topic in request.topic_data:
        key = topic.name or TopicId(topic.topic_id)
        for data in topic.partition_data[:PARTITIONS_MAX]:
            if data.records is not None and len(data.records) >= HEADER_SIZE:
                counts[key, data.index] = _count_at(data.records, _COUNT_POSITION)[0]
    return counts


class Subjects:
    """Describes requests with the names of topics and with the logs of this broker."""

    def __init__(
        self, find: Callable[[str | TopicId, int], Slot], name_of: Callable[[TopicId], str | None]
    ) -> None:
        self._find = find
        self._name_of = name_of

    def produced(
        self, topics: Iterable[TopicProduceResponse], counts: Counts | None = None
    ) -> list[PartitionRange]:
        """The ranges of appended batches. Without `counts`, they are looked up in the logs."""

        def ranges() -> Iterator[PartitionRange]:
            for topic in topics:
                key = topic.name or TopicId(topic.topic_id)
                for answer in topic.partition_responses:
                    if answer.error_code or answer.base_offset < 0:
                        continue
                    base = answer.base_offset
                    count = (
                        self._count(key, answer.index, base)
                        if counts is None
                        else counts.get((key, answer.index))
                    )
                    yield PartitionRange(self._name(key), answer.index, base, count)

        return list(islice(ranges(), PARTITIONS_MAX))

    def acknowledged(self, request: ProduceRequest, content: tuple[int, int, int]) -> list[PartitionRange]:
        """The range of the one batch of a request, whose response has only numbers."""
        (((key, index), count),) = produce_counts(request).items()
        return [PartitionRange(self._name(key), index, content[1], count)]

    def fetched(self, request: FetchRequest, response: FetchResponse | None) -> list[PartitionRange]:
        """The ranges of a fetch, from the offsets of the request on.

        The count is known if the batches are in memory.
        """
        offsets = {
            (topic.topic or TopicId(topic.topic_id), wanted.partition): wanted.fetch_offset
            for topic in request.topics
            for wanted in topic.partitions
        }
        if response is None:
            return [
                PartitionRange(self._name(key), index, offset)
                for (key, index), offset in islice(offsets.items(), PARTITIONS_MAX)
            ]

        def ranges() -> Iterator[PartitionRange]:
            for topic in response.responses:
                key = topic.topic or TopicId(topic.topic_id)
                for answer in topic.partitions:
                    offset = offsets.get((key, answer.partition_index))
                    if offset is not None and answer.records:
                        count = _offsets_in(answer.records, offset)
                        yield PartitionRange(self._name(key), answer.partition_index, offset, count)

        return list(islice(ranges(), PARTITIONS_MAX))

    def traceparent(self, ranges: Sequence[PartitionRange]) -> bytes | None:
        """The trace context of the first record of the first range, if its batch is in memory."""
        if not ranges:
            return None
        first = ranges[0]
        partition = self._find(first.topic, first.partition)
        if not isinstance(partition, Partition):
            return None
        log = partition.log
        try:
            found = log.read(first.base_offset, 1, upper=log.end_offset, cached_only=True)
            if found is None:
                return None
            return first_traceparent(found.file.pread(min(found.size, SEARCHED_BYTES_MAX), found.position))
        except (ApiError, ColdPages, OSError):
            return None

    def _name(self, key: str | TopicId) -> str:
        return key if isinstance(key, str) else self._name_of(key) or str(key)

    def _count(self, key: str | TopicId, index: int, base_offset: int) -> int | None:
        """The number of records of the batch at `base_offset`; None if it is not in memory any more."""
        partition = self._find(key, index)
        if not isinstance(partition, Partition):
            return None
        log = partition.log
        try:
            header = log.newest(base_offset)
            if header is None:
                found = log.read(base_offset, 1, upper=log.end_offset, cached_only=True)
                if found is None or found.size < HEADER_SIZE:
                    return None
                header = found.file.pread(HEADER_SIZE, found.position)
        except (ApiError, ColdPages, OSError):
            return None
        return int(_count_at(header, _COUNT_POSITION)[0])


def _offsets_in(records: Any, offset: int) -> int | None:
    """The number of offsets from `offset` on in batches in memory, by their headers; None for a file."""
    if not isinstance(records, bytes | bytearray | memoryview):
        return None
    position, end = 0, offset
    while len(records) - position >= HEADER_SIZE:
        base, length = _length_at(records, position)
        if len(records) - position < _OVERHEAD + length:
            break
        end = base + _last_delta_at(records, position + _LAST_DELTA_POSITION)[0] + 1
        position += _OVERHEAD + length
    return max(0, end - offset)
