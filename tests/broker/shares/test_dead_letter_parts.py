"""Copies for dead letters are read and written part by part, within bounded memory and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.shares import dead_letters
from penstock.broker.shares.dead_letters import DeadLetters
from penstock.broker.shares.group_settings import DeadLetterSettings
from penstock.model.errors import ErrorCode
from penstock.records.record import Record, iter_records
from penstock.shares.partition import Undeliverable
from penstock.shares.states import DeadLetterCause
from tests.broker.shares.fakes import BATCH_RECORDS, FakeLog, Workers, leading


class _Log(FakeLog):
    def __init__(self, batches: int, events: list[str]) -> None:
        super().__init__(batches)
        self._events = events

    def read(self, offset: int, limit: int, **others: object) -> Any:
        self._events.append("read")
        return super().read(offset, limit, **others)


class Broker:
    """Dead letters of a partition with 60 batches of ten records and 40 KB."""

    def __init__(self, copies: bool = True) -> None:
        self.events: list[str] = []
        self.letters: list[Record] = []
        #: called once so many letters are written
        self.after: dict[int, Callable[[], None]] = {}
        self.writable = asyncio.Event()
        self.writable.set()
        #: dead-letter partitions without a leader
        self.leaderless: set[int] = set()
        self.partition = leading(_Log(60, self.events))
        settings = SimpleNamespace(
            dead_letters=DeadLetterSettings(topic="dlq.jobs", copies_records=copies, creates_topics=False)
        )
        config = SimpleNamespace(
            of=lambda group: settings, topic=lambda name: SimpleNamespace(takes_dead_letters=True)
        )
        image = SimpleNamespace(topics={"dlq.jobs": SimpleNamespace(partitions=dict.fromkeys(range(8)))})
        clock = SimpleNamespace(now_ms=lambda: 1000)
        writer = SimpleNamespace(write=self._append)
        parts: Any = (config, image, clock, Workers(), writer, None, self._spawn)
        self.dead_letters = DeadLetters(*parts)
        self.tasks: list[asyncio.Task[None]] = []

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def _append(self, topic: str, index: int, batch: bytes) -> ErrorCode:
        if index in self.leaderless:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        await self.writable.wait()
        self.events.append("write")
        self.letters += iter_records(batch)
        self.after.get(len(self.letters), lambda: None)()
        return ErrorCode.NONE

    def give_up(self, *ranges: tuple[int, int], index: int = 0) -> None:
        undeliverable = [Undeliverable(*each, 1, DeadLetterCause.LIMIT) for each in ranges]
        partition = leading(self.partition.log, index) if index else self.partition
        self.dead_letters.write("group", partition, undeliverable)

    @property
    def offsets(self) -> list[int]:
        return [int(dict(letter.headers)["__dlq.errors.offset"] or b"") for letter in self.letters]


def reads_and_writes(events: Sequence[str]) -> list[str]:
    """The events without repetitions."""
    return [event for i, event in enumerate(events) if i == 0 or events[i - 1] != event]


def test_a_part_is_written_before_the_next_one_is_read() -> None:
    async def main() -> Broker:
        broker = Broker()
        broker.give_up((0, 599))
        await asyncio.gather(*broker.tasks)
        return broker

    broker = asyncio.run(main())
    assert broker.offsets == list(range(600))
    assert all(len(letter.value or b"") == 4000 for letter in broker.letters)
    assert reads_and_writes(broker.events) == ["read", "write"] * 3, "2.4 MB"
    assert (broker.dead_letters.written, broker.dead_letters.failed) == (600, 0)


def test_few_parts_of_one_partition_are_in_memory() -> None:
    async def main() -> Broker:
        broker = Broker()
        broker.writable.clear()
        for first in range(0, 600, 10):
            broker.give_up((first, first + 9))
        for _ in range(100):
            await asyncio.sleep(0)
        assert broker.events == ["read"] * 4
        broker.writable.set()
        await asyncio.gather(*broker.tasks)
        return broker

    assert sorted(asyncio.run(main()).offsets) == list(range(600))


def test_few_parts_of_all_partitions_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_COPYING_MAX_IN_ALL", 6)

    async def main() -> Broker:
        broker = Broker()
        broker.writable.clear()
        for first in range(0, 600, 10):
            broker.give_up((first, first + 9), index=first // 10 % 8)
        for _ in range(100):
            await asyncio.sleep(0)
        assert broker.events == ["read"] * 6
        broker.writable.set()
        await asyncio.gather(*broker.tasks)
        return broker

    assert sorted(asyncio.run(main()).offsets) == list(range(600))


def test_a_partition_without_a_leader_does_not_delay_the_letters_of_others() -> None:
    async def main() -> Broker:
        broker = Broker()
        broker.leaderless = {3}
        for first in range(0, 80, 10):
            broker.give_up((first, first + 9), index=3)
        for _ in range(100):
            await asyncio.sleep(0)
        broker.give_up((80, 89), index=4)
        for _ in range(100):
            await asyncio.sleep(0)
        assert broker.offsets == list(range(80, 90))
        broker.leaderless = set()
        await asyncio.gather(*broker.tasks)
        return broker

    counts = asyncio.run(main()).dead_letters
    assert (counts.written, counts.failed) == (90, 0)


def test_the_wait_for_a_turn_loses_no_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> Broker:
        broker = Broker()
        broker.writable.clear()
        for first in range(0, 40, 10):
            broker.give_up((first, first + 9))
        await asyncio.sleep(0)
        patience_s = 0.01
        monkeypatch.setattr(dead_letters, "_PATIENCE_S", patience_s)
        for first in range(40, 80, 10):
            broker.give_up((first, first + 9))
        await asyncio.sleep(0)
        # They wait for longer than they may take.
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), patience_s)
        monkeypatch.setattr(dead_letters, "_PATIENCE_S", 60.0)
        broker.writable.set()
        await asyncio.gather(*broker.tasks)
        return broker

    counts = asyncio.run(main()).dead_letters
    assert (counts.written, counts.failed) == (80, 0)


def test_ranges_that_are_close_together_are_read_once() -> None:
    async def main() -> Broker:
        broker = Broker()
        broker.partition.log.log_start_offset = 2
        broker.give_up(*((offset, offset) for offset in range(0, 100, 2)))
        await asyncio.gather(*broker.tasks)
        return broker

    broker = asyncio.run(main())
    assert broker.events == ["read", "write"]
    assert broker.offsets == list(range(0, 100, 2))
    assert [letter.value is None for letter in broker.letters] == [True] + [False] * 49


def test_parts_that_are_written_in_time_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patience is that of a part: many records are no reason to lose letters."""

    async def main() -> Broker:
        broker = Broker()

        def stop() -> None:
            broker.writable.clear()
            monkeypatch.setattr(dead_letters, "_PATIENCE_S", 0.01)

        broker.after[26 * BATCH_RECORDS] = stop
        broker.give_up((0, 599))
        await asyncio.gather(*broker.tasks)
        return broker

    counts = asyncio.run(main()).dead_letters
    assert (counts.written, counts.failed) == (260, 340)


def test_letters_without_copies_read_nothing() -> None:
    async def main() -> Broker:
        broker = Broker(copies=False)
        broker.give_up((0, 2999))
        await asyncio.gather(*broker.tasks)
        return broker

    broker = asyncio.run(main())
    assert broker.events == ["write"] * 6
    assert broker.offsets == list(range(3000))
