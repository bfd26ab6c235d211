"""Fetches from a source: what a session leaves out, a source that dies, and batches of one record."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

from penstock.broker.links.mirrored_partition import whole_batches
from penstock.broker.links.returning import _headers, _in_steps
from penstock.broker.links.source_fetcher import _BATCH_BYTES, _RESPONSE_BYTES, SourceFetcher
from penstock.broker.replica.given_offsets import BATCHES_MAX
from penstock.linking.mirror import LastBatch, PartitionMirror, Phase
from penstock.model.errors import PenstockError
from penstock.model.ids import TopicId
from penstock.net.randomness import SystemRng
from penstock.wire.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.broker.requests import batch_of, record

T = TypeVar("T")
_TOPIC = TopicId(bytes(15) + b"\x01")
_HOUR_MS = 3_600_000


class _Mirrored(SimpleNamespace):
    """A mirror without a partition: only empty responses are taken."""

    awaits_response, largest_producer_id, is_led = False, -1, True
    fenced, retry_at_ms = False, 0
    key = _TOPIC, 0

    def __init__(self) -> None:
        log: Any = SimpleNamespace(end_offset=0, log_start_offset=0)
        self.partition = SimpleNamespace(name="orders-0", log=log)
        self.topic = SimpleNamespace(source_topic="orders", source_id=_TOPIC)
        self.mirror = PartitionMirror(log, None, 0, compacted=False)

    def next_fetch(self, now_ms: int) -> object:
        return self.mirror.next_fetch(now_ms)

    def take(self, records: memoryview, offset: int, source_epoch: int) -> Iterator[None]:
        return iter(())


async def _lag_of_an_idle_source() -> int:
    """The milliseconds since the mirror had everything, when a source dies that was idle for an hour."""
    clock: Any = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s)
    dead = asyncio.Event()

    async def send(*_: Any) -> FetchResponse:
        clock.now_s += _HOUR_MS / 2 / 1000
        if clock.now_s == 0.5 * _HOUR_MS / 1000:
            data = [PartitionData(partition_index=0, high_watermark=0, log_start_offset=0)]
            return FetchResponse(
                session_id=7, responses=[FetchableTopicResponse(topic_id=_TOPIC, partitions=data)]
            )
        if clock.now_s <= _HOUR_MS / 1000:
            return FetchResponse(session_id=7)
        clock.now_s = _HOUR_MS / 1000 + 1
        dead.set()
        raise PenstockError("the source is gone")

    source: Any = SimpleNamespace(
        address=lambda broker: ("source", 9092),
        new_peer=lambda address: SimpleNamespace(host="source", port=9092, send=send, close=lambda: None),
    )
    mirrored: Any = _Mirrored()
    fetcher = SourceFetcher(
        1, "west", source, clock, SystemRng(), lambda: None, lambda largest: True, follows_log_start=False
    )
    fetcher.follow(mirrored)
    await asyncio.wait_for(dead.wait(), 30)
    await asyncio.sleep(0)
    await fetcher.stop()
    lag_ms: int = int(clock.now_s * 1000) - mirrored.mirror.caught_up_ms
    return lag_ms


def test_the_lag_of_an_idle_source_that_dies_counts_from_its_last_response() -> None:
    """It counted from the last record, an hour ago."""
    assert asyncio.run(_lag_of_an_idle_source()) == 1_000


def _of_partitions(
    *partitions: PartitionData, session_id: int = 7, throttle_time_ms: int = 0
) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=_TOPIC, partitions=list(partitions))
    return FetchResponse(session_id=session_id, throttle_time_ms=throttle_time_ms, responses=[topic])


async def _caught_up_ms(second: FetchResponse, *, pauses: bool = False) -> int:
    """When a mirror last had everything, after an hour in which a response leaves it out.

    `pauses`: it is not asked for in that hour.
    """
    clock: Any = SimpleNamespace(now_s=1.0, monotonic=lambda: clock.now_s)
    source: Any = SimpleNamespace(address=lambda broker: None)
    fetcher = SourceFetcher(
        1, "west", source, clock, SystemRng(), lambda: None, lambda largest: True, follows_log_start=False
    )
    mirrored: Any = _Mirrored()
    other: Any = _Mirrored()
    other.key = _TOPIC, 1

    async def exchange(response: FetchResponse) -> None:
        planned = fetcher._plan.next_request(fetcher._now_ms())
        assert planned is not None
        fetcher._note_asked(planned)
        await fetcher._take(response)

    # Without its task, which would send requests.
    for each in (mirrored, other):
        fetcher._followed[each.key] = each
        fetcher._plan.follow(each.key, each)
    both = [PartitionData(partition_index=index, high_watermark=0, log_start_offset=0) for index in (0, 1)]
    await exchange(_of_partitions(*both))
    clock.now_s += _HOUR_MS / 1000
    if pauses:
        mirrored.mirror.retry_at_ms = mirrored.retry_at_ms = fetcher._now_ms() + 1
        fetcher._plan.touched(mirrored.key)
    await exchange(second)
    clock.now_s += 1
    fetcher._plan.touched(mirrored.key)
    await exchange(_of_partitions(PartitionData(partition_index=0, high_watermark=5, log_start_offset=0)))
    assert mirrored.mirror.source_end == 5
    caught_up_ms: int = mirrored.mirror.caught_up_ms
    return caught_up_ms


def test_a_partition_that_a_response_leaves_out_has_nothing_more_if_there_was_room() -> None:
    def caught_up_ms(second: FetchResponse) -> int:
        return asyncio.run(_caught_up_ms(second))

    def with_records(size: int) -> FetchResponse:
        # Of a partition that this broker does not mirror any more: it takes none of them.
        return _of_partitions(PartitionData(partition_index=9, records=memoryview(bytes(size))))

    assert caught_up_ms(FetchResponse(session_id=7)) == 1_000 + _HOUR_MS
    assert caught_up_ms(with_records(_RESPONSE_BYTES - _BATCH_BYTES)) == 1_000 + _HOUR_MS
    assert caught_up_ms(with_records(_RESPONSE_BYTES - _BATCH_BYTES + 1)) == 1_000
    assert caught_up_ms(_of_partitions(throttle_time_ms=1)) == 1_000


def test_responses_tell_nothing_of_a_partition_that_was_not_asked_for() -> None:
    assert asyncio.run(_caught_up_ms(FetchResponse(session_id=7), pauses=True)) == 1_000


def _many_batches(count: int) -> memoryview:
    return memoryview(bytes(batch_of([record(b"x")])) * count)


def _run(steps: Generator[None, None, T]) -> tuple[int, T]:
    """How often a computation leaves the loop, and its result."""
    turns = 0
    while True:
        try:
            next(steps)
        except StopIteration as e:
            return turns, e.value
        turns += 1


def test_batches_of_one_record_are_walked_in_slices() -> None:
    """A megabyte has 15,000 of them: to walk them at once held the loop for 30 ms."""
    records = _many_batches(3 * BATCHES_MAX + 1)
    turns, whole = _run(whole_batches(memoryview(bytes(records) + bytes(records)[:50])))
    assert (turns, whole) == (3, records)
    turns, batches = _run(_in_steps(_headers(whole)))
    assert (turns, len(batches)) == (3, 3 * BATCHES_MAX + 1)


def test_a_partition_that_is_left_while_its_response_is_walked_takes_nothing() -> None:
    async def source_ends(leaves: bool) -> int:
        source: Any = SimpleNamespace(address=lambda broker: None)
        clock: Any = SimpleNamespace(monotonic=lambda: 1.0)
        fetcher = SourceFetcher(
            1, "west", source, clock, SystemRng(), lambda: None, lambda largest: True, follows_log_start=False
        )
        mirrored: Any = _Mirrored()
        # Without its task, which would send requests.
        fetcher._followed[mirrored.key] = mirrored
        fetcher._plan.remembered[mirrored.key] = mirrored.next_fetch(1_000)
        data = PartitionData(
            partition_index=0, high_watermark=5, log_start_offset=0, records=_many_batches(BATCHES_MAX)
        )
        answered = asyncio.ensure_future(fetcher._answered(mirrored.key, data, has_room=True))
        await asyncio.sleep(0)
        if leaves:
            fetcher.leave(mirrored.key)
        await answered
        await fetcher.stop()
        end: int = mirrored.mirror.source_end
        return end

    assert asyncio.run(source_ends(leaves=False)) == 5
    assert asyncio.run(source_ends(leaves=True)) == -1


def test_a_last_batch_is_compared_with_responses_that_have_room_for_it() -> None:
    """A link that had many records to fetch took the first, full response for a source without the batch."""

    async def phase(others: int) -> Phase:
        source: Any = SimpleNamespace(address=lambda broker: None)
        clock: Any = SimpleNamespace(monotonic=lambda: 1.0)
        fetcher = SourceFetcher(
            1, "west", source, clock, SystemRng(), lambda: None, lambda largest: True, follows_log_start=False
        )
        mirrored: Any = _Mirrored()
        log: Any = SimpleNamespace(end_offset=10, log_start_offset=0)
        mirrored.mirror = PartitionMirror(log, LastBatch(8, 9, 1, -1, -1, -1), 0, compacted=False)
        # Without its task, which would send requests.
        fetcher._followed[mirrored.key] = mirrored
        fetcher._plan.remembered[mirrored.key] = mirrored.next_fetch(1_000)
        other = PartitionData(partition_index=9, records=memoryview(bytes(others)))
        empty = PartitionData(partition_index=0, high_watermark=12, log_start_offset=0)
        await fetcher._take(_of_partitions(other, empty))
        found: Phase = mirrored.mirror.phase
        return found

    assert asyncio.run(phase(_RESPONSE_BYTES)) is Phase.VERIFYING
    assert asyncio.run(phase(0)) is Phase.DIVERGED


def test_responses_of_a_source_that_was_rolled_back_are_taken() -> None:
    """Versions of Fetch below 13 have names of topics instead of ids. The requests have both."""

    async def source_end() -> int:
        source: Any = SimpleNamespace(address=lambda broker: None)
        clock: Any = SimpleNamespace(monotonic=lambda: 1.0)
        fetcher = SourceFetcher(
            1, "west", source, clock, SystemRng(), lambda: None, lambda largest: True, follows_log_start=False
        )
        mirrored: Any = _Mirrored()
        # Without its task, which would send requests.
        fetcher._followed[mirrored.key] = mirrored
        fetcher._topic_ids["orders"] = _TOPIC
        fetcher._plan.follow(mirrored.key, mirrored)
        planned = fetcher._plan.next_request(1_000)
        assert planned is not None
        (asked,) = fetcher._request(planned, 0).topics
        assert (asked.topic, asked.topic_id) == ("orders", _TOPIC)
        data = [PartitionData(partition_index=0, high_watermark=5, log_start_offset=0)]
        await fetcher._take(
            FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=data)])
        )
        end: int = mirrored.mirror.source_end
        return end

    assert asyncio.run(source_end()) == 5
