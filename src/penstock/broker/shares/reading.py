"""Reads batches of a share partition from the log and acquires their records for a member.

Only the headers of batches are read here, never records. A read is small: a member that wants few records
must not cost a read of all bytes that its request allows. One request gets a limited number of batches of a
partition: small batches of an encrypted file take 5 µs each, which other clients wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.broker.fetch.pipeline import newest_within
from penstock.broker.replica.partition import Partition
from penstock.broker.shares.partition_host import SharePartitionHost
from penstock.model.errors import ApiError
from penstock.records.batch import BatchHeader
from penstock.records.record import iter_batches
from penstock.shares.acquisition import Acquired, AcquireRequest, FetchedBatch, acquire
from penstock.storage.scan import ColdPages

__all__ = ["AcquiredData", "read_and_acquire"]

#: the size of the first read, and the largest size of each further read for one request
_FIRST_READ: Final = 64 << 10
_NEXT_READ: Final = 1 << 20
#: the number of batches that a further read is to bring, and the most that one request gets
_NEXT_BATCHES: Final = 500
_BATCHES_MAX: Final = 1000


class AcquiredData(NamedTuple):
    """Records that a member has acquired, and the batches that contain them."""

    ranges: list[Acquired]
    #: pieces of the log, in order
    pieces: list[memoryview]
    #: the pages behind these records that are not in the page cache, if that ended the read
    cold: ColdPages | None = None

    @property
    def record_count(self) -> int:
        return sum(last - first + 1 for first, last, _ in self.ranges)

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    def records(self) -> bytes | memoryview:
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


class _Batch(NamedTuple):
    position: int
    header: BatchHeader
    is_data: bool


def read_and_acquire(
    host: SharePartitionHost, request: AcquireRequest, bytes_max: int, at_least_one: bool, now_ms: int
) -> AcquiredData:
    """Acquire up to `request.records_max` records, in up to `bytes_max` bytes of batches.

    With `at_least_one`, the first batch may be larger. Raises ApiError, or ColdPages to be loaded, only if no
    record was acquired: acquired records have to be in a response. Behind them, a failed read ends the
    acquisition, and the next request gets the error.
    """
    assert host.share is not None
    host.share.move_start(host.partition.log.log_start_offset)
    found = AcquiredData([], [])
    try:
        _acquire_into(found, host, request, bytes_max, at_least_one, now_ms)
    except ColdPages as e:
        if not found.ranges:
            raise
        found = found._replace(cold=e)
    except ApiError:
        if not found.ranges:
            raise
    if found.ranges:
        host.stats.count_deliveries(found.ranges)
        host.watch_locks()
    else:
        host.persist_start()
    return found


def _acquire_into(
    found: AcquiredData,
    host: SharePartitionHost,
    request: AcquireRequest,
    bytes_max: int,
    at_least_one: bool,
    now_ms: int,
) -> None:
    """Add acquired records to `found`, which has the earlier ones also after an error."""
    share, partition, settings = host.share, host.partition, host.settings
    assert share is not None
    delay_ms = host.delay_ms
    left, missing, last_base, limit, count = bytes_max, request.records_max, -1, _FIRST_READ, 0
    upper = partition.readable_end(settings.is_committed)
    while missing > 0:
        offset = share.next_fetch_offset(settings.limits)
        if offset is None or offset >= upper or (left <= 0 and not (at_least_one and not found.pieces)):
            break
        data = _read(partition, offset, min(limit, max(left, 0)), upper, at_least_one and not found.pieces)
        end = min(upper, share.end_of(offset, missing))
        batches = _batches(partition, data, offset, end, settings.is_committed)
        if delay_ms:
            batches = _old_enough(host, batches, delay_ms)
        if not batches:
            break
        fetched = [FetchedBatch(b.header.base_offset, b.header.last_offset, b.is_data) for b in batches]
        part = acquire(share, request._replace(records_max=missing), offset, fetched, settings.limits, now_ms)
        if not part:
            if share.next_fetch_offset(settings.limits) == offset:
                break
            # The batches had no records for the group.
            continue
        found.ranges.extend(part)
        piece, last_base = _slice(data, batches, part, last_base)
        if piece:
            found.pieces.append(piece)
        count += len(batches)
        limit = min(_NEXT_READ, max(_FIRST_READ, _NEXT_BATCHES * len(data) // len(batches)))
        missing -= sum(last - first + 1 for first, last, _ in part)
        left -= len(piece)
        if _is_alone(part, host) or count >= _BATCHES_MAX:
            break


def _old_enough(host: SharePartitionHost, batches: list[_Batch], delay_ms: int) -> list[_Batch]:
    """The batches before the first one that is too young."""
    now_ms = host.wall_ms()
    for i, batch in enumerate(batches):
        due_ms = batch.header.max_timestamp + delay_ms
        if due_ms > now_ms and batch.is_data:
            host.delay_until(max(batch.header.base_offset, 0), due_ms)
            return batches[:i]
    return batches


def _is_alone(part: list[Acquired], host: SharePartitionHost) -> bool:
    """Returns true if records with many failed deliveries are among those acquired: no others follow."""
    smaller_from = max(2, -(-host.limits.delivery_count // 2))
    return any(count > smaller_from for _, _, count in part)


def _read(partition: Partition, offset: int, limit: int, upper: int, at_least_one: bool) -> memoryview:
    log = partition.log
    if partition.health.offline is not None:
        partition.health.check()
    newest = newest_within(log, offset, upper, None if at_least_one else limit)
    if newest is not None:
        return memoryview(newest)
    found = log.read(offset, limit, upper=upper, at_least_one=at_least_one, cached_only=True)
    if found is None:
        return memoryview(b"")
    try:
        return memoryview(found.read())
    except OSError as e:
        raise partition.read_failed(e, found) from e


def _batches(
    partition: Partition, data: memoryview, offset: int, end: int, is_committed: bool
) -> list[_Batch]:
    """The batches in `data` from `offset` to before `end`, and more if none of these has records.

    Batches behind `end` are looked at only then: a member that wants one record must not cost the headers of
    all batches that were read. Offsets before a batch may be a gap that reaches beyond `end`.
    """
    rest = ((position, header) for position, header in iter_batches(data) if header.last_offset >= offset)
    headers: list[tuple[int, BatchHeader]] = []
    behind: tuple[int, BatchHeader] | None = None
    for found in rest:
        if found[1].base_offset >= end and headers:
            behind = found
            break
        headers.append(found)
    batches = list(_marked(partition, headers, offset, is_committed))
    if behind is None or any(batch.is_data for batch in batches):
        return batches
    return list(_marked(partition, [*headers, behind, *rest], offset, is_committed))


def _marked(
    partition: Partition, headers: Sequence[tuple[int, BatchHeader]], offset: int, is_committed: bool
) -> Iterator[_Batch]:
    """The batches, with those marked that have records: control batches and aborted ones have none."""
    aborted: list[tuple[int, int]] = []
    if is_committed and headers:
        after = headers[-1][1].next_offset
        aborted = sorted(
            (first, producer)
            for producer, first in partition.log.aborted_transactions(offset, after, cached_only=True)
        )
    open_aborts: set[int] = set()
    for position, header in headers:
        while aborted and aborted[0][0] <= header.last_offset:
            open_aborts.add(aborted.pop(0)[1])
        if header.is_control:
            open_aborts.discard(header.producer_id)
            yield _Batch(position, header, False)
        else:
            is_aborted = header.is_transactional and header.producer_id in open_aborts
            yield _Batch(position, header, not is_aborted)


def _slice(
    data: memoryview, batches: list[_Batch], part: list[Acquired], last_base: int
) -> tuple[memoryview, int]:
    """The batches with acquired records, without the one at `last_base`. Returns the last one's base, too."""
    first, last = part[0].first, part[-1].last
    wanted = [b for b in batches if b.header.last_offset >= first and b.header.base_offset <= last]
    base = wanted[-1].header.base_offset
    wanted = [b for b in wanted if b.header.base_offset > last_base]
    if not wanted:
        return memoryview(b""), base
    end = wanted[-1].position + wanted[-1].header.size
    return data[wanted[0].position : end], base
