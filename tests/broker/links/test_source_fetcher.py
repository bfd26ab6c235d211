"""Fetches from a source: what a session leaves out, and a source that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from penstock.broker.links.source_fetcher import SourceFetcher
from penstock.linking.mirror import PartitionMirror
from penstock.model.errors import PenstockError
from penstock.model.ids import TopicId
from penstock.net.randomness import SystemRng
from penstock.wire.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData

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
