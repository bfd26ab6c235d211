"""ShareFetch of partitions whose pages are cold or damaged: every acquired record is in a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from penstock.broker.shares import reading, share_fetch
from penstock.broker.shares.share_fetch import FetchResult, FetchWishes, ShareFetch
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.model.errors import ErrorCode
from penstock.net.deferred import Deferred
from penstock.shares.acquisition import AcquireRequest
from penstock.shares.partition import ShareLimits
from penstock.shares.sessions import TopicIdPartition
from penstock.shares.shard import ShareStateKey
from tests.broker.shares.fakes import BATCH_RECORDS, FakeLog, Persister, Workers, leading

TOPIC = bytes(16)


class Leader:
    """A broker that leads one partition for each log, and a member of a share group."""

    def __init__(self, *logs: FakeLog) -> None:
        settings = SimpleNamespace(limits=ShareLimits(), is_committed=False)
        config = SimpleNamespace(of=lambda group: settings, topic=lambda name: SimpleNamespace(delay_ms=0))
        clock = SimpleNamespace(monotonic=lambda: 1.0, now_ms=lambda: 1000)
        self.persister = Persister()
        parts: Any = (config, clock, Workers(), self.persister, None)
        self.shares = SharePartitions(*parts)
        self._partitions = [leading(log, index) for index, log in enumerate(logs)]
        self.errors: list[Exception] = []

    async def load(self) -> None:
        for index, partition in enumerate(self._partitions):
            self.shares.find(ShareStateKey("group", TOPIC, index), partition)
        await self.persister.idle()

    async def fetch(self) -> FetchResult | None:
        """The result; None if the fetch still waits once all pages are loaded."""
        context: Any = SimpleNamespace(failed=self.errors.append)
        workers: Any = Workers()
        wanted = [TopicIdPartition(TOPIC, index) for index in range(len(self._partitions))]
        wishes = FetchWishes("group", AcquireRequest("m", 500, 500), 1, 50 << 20, max_wait_s=60.0)
        found = ShareFetch(
            context, self.shares, lambda _, index: self._partitions[index], workers, wanted, wishes
        ).run()
        await self.persister.idle()
        if isinstance(found, Deferred):
            result = found.value if found.done else None
            found.cancel()
            return result
        return found

    @property
    def acquired(self) -> int:
        """The number of records with an acquisition lock."""
        return sum(host.share.in_flight for host in self.shares.hosts() if host.share is not None)

    def timers_are_set(self) -> bool:
        return all(host._timer is not None for host in self.shares.hosts())


def run(steps: Callable[[Leader], Awaitable[None]], *logs: FakeLog) -> None:
    async def main() -> None:
        leader = Leader(*logs)
        await leader.load()
        await steps(leader)
        leader.shares.stop()

    asyncio.run(main())


def delivered(result: FetchResult | None) -> int:
    assert result is not None
    return sum(found.record_count for found in result.values() if not isinstance(found, ErrorCode))


def test_records_before_cold_pages_are_delivered() -> None:
    """The first read is small. A later one of the same request meets cold pages."""

    async def steps(leader: Leader) -> None:
        first = await leader.fetch()
        assert delivered(first) == leader.acquired == BATCH_RECORDS
        assert leader.timers_are_set(), "the locks expire"
        second = await leader.fetch()
        assert delivered(second) == 3 * BATCH_RECORDS, "the cold pages were loaded meanwhile"
        assert leader.acquired == 4 * BATCH_RECORDS

    run(steps, FakeLog(4, cold=[2]))


def test_records_of_a_partition_that_is_loaded_sooner_are_delivered() -> None:
    slow = FakeLog(1, cold=[0])
    slow.cold[0] = 2

    async def steps(leader: Leader) -> None:
        result = await leader.fetch()
        assert delivered(result) == leader.acquired == BATCH_RECORDS
        assert delivered(await leader.fetch()) == BATCH_RECORDS
        assert leader.acquired == 2 * BATCH_RECORDS

    run(steps, FakeLog(1, cold=[0]), slow)


def test_a_cold_partition_is_loaded_while_others_have_records() -> None:
    busy, cold = FakeLog(1), FakeLog(1, cold=[0])

    async def steps(leader: Leader) -> None:
        assert delivered(await leader.fetch()) == BATCH_RECORDS
        assert not cold.cold
        assert delivered(await leader.fetch()) == BATCH_RECORDS

    run(steps, busy, cold)


def test_records_before_damage_are_delivered() -> None:
    """Each attempt that acquired and dropped them would bring them closer to their delivery limit."""

    async def steps(leader: Leader) -> None:
        assert delivered(await leader.fetch()) == leader.acquired == BATCH_RECORDS
        result = await leader.fetch()
        assert result == {TopicIdPartition(TOPIC, 0): ErrorCode.CORRUPT_MESSAGE}
        assert leader.acquired == BATCH_RECORDS

    run(steps, FakeLog(3, damaged=[1]))


def test_an_unexpected_error_after_pages_were_loaded_closes_the_connection(monkeypatch: Any) -> None:
    read = reading.read_and_acquire
    calls: list[object] = []

    def failing(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise ZeroDivisionError
        return read(*arguments)

    monkeypatch.setattr(share_fetch, "read_and_acquire", failing)

    async def steps(leader: Leader) -> None:
        assert await leader.fetch() is None
        assert [type(error) for error in leader.errors] == [ZeroDivisionError]

    run(steps, FakeLog(1, cold=[0]))
