from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.lanes import Lanes, Progress
from penstock.client.message import Message
from penstock.model.ids import TopicPartition


class Raw:
    """A message as librdkafka gives it."""

    def __init__(self, partition: int, offset: int, key: bytes | None) -> None:
        self._place = partition, offset, key

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._place[0]

    def offset(self) -> int:
        return self._place[1]

    def key(self) -> bytes | None:
        return self._place[2]


def message(partition: int, offset: int, key: bytes | None = None) -> Message:
    return Message(Raw(partition, offset, key), bytes, bytes)


@given(st.permutations(list(range(12))))
def test_the_position_is_the_lowest_unfinished_offset(order: list[int]) -> None:
    progress = Progress()
    offsets = [10 + 3 * i for i in range(12)]  # compaction leaves holes
    for offset in offsets:
        progress.begin(offset)
    finished = set()
    for i in order:
        progress.finish(offsets[i])
        finished.add(offsets[i])
        unfinished = [offset for offset in offsets if offset not in finished]
        below = [offset for offset in offsets if not unfinished or offset < unfinished[0]]
        assert progress.position == (below[-1] + 1 if below else None)
    assert not progress.unfinished


class Stage:
    """Handlers that the test lets finish."""

    def __init__(self) -> None:
        self.running: list[Message] = []
        self.finished: list[Message] = []
        self._ends: dict[int, asyncio.Event] = {}

    async def handle(self, message: Message) -> None:
        self.running.append(message)
        await self._ends.setdefault(id(message), asyncio.Event()).wait()
        self.running.remove(message)
        self.finished.append(message)

    def end(self, message: Message) -> None:
        self._ends[id(message)].set()


async def settle() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([None, b"a", b"b"])), max_size=25),
    st.integers(1, 4),
    st.randoms(),
)
def test_order_per_key_and_bounded_concurrency(
    kinds: list[tuple[int, bytes | None]], concurrency: int, random: Any
) -> None:
    messages = [message(partition, offset, key) for offset, (partition, key) in enumerate(kinds)]

    async def play() -> Stage:
        stage = Stage()
        async with asyncio.TaskGroup() as group:
            lanes = Lanes(stage.handle, concurrency, group)
            adding = group.create_task(add(lanes))
            await settle()
            while stage.running or not adding.done():
                assert len(stage.running) <= concurrency
                stage.end(random.choice(stage.running))
                await settle()
                check(lanes, stage)
        return stage

    async def add(lanes: Lanes) -> None:
        for m in messages:
            await lanes.room()
            lanes.add(m)

    def check(lanes: Lanes, stage: Stage) -> None:
        for partition, position in lanes.positions().items():
            mine = [m for m in messages if m.topic_partition == partition and m.offset < position]
            assert all(m in stage.finished for m in mine)

    stage = asyncio.run(play())
    assert sorted(m.offset for m in stage.finished) == [m.offset for m in messages]
    for lane in {(m.topic_partition, m.raw_key) for m in messages}:
        offsets = [m.offset for m in stage.finished if (m.topic_partition, m.raw_key) == lane]
        assert offsets == sorted(offsets)


def test_draining_waits_for_its_partitions_only() -> None:
    mine, other = message(0, 0), message(1, 0)

    async def play() -> None:
        stage = Stage()
        async with asyncio.TaskGroup() as group:
            lanes = Lanes(stage.handle, 2, group)
            lanes.add(mine)
            lanes.add(other)
            drained = group.create_task(lanes.drain({TopicPartition("t", 0)}))
            await settle()
            assert not drained.done()
            stage.end(mine)
            await settle()
            assert drained.done()
            stage.end(other)

    asyncio.run(play())


def test_messages_handled_after_the_partition_was_revoked_do_not_count() -> None:
    before, after = message(0, 5, b"k"), message(0, 9, b"k")

    async def play() -> None:
        stage = Stage()
        async with asyncio.TaskGroup() as group:
            lanes = Lanes(stage.handle, 2, group)
            lanes.add(before)
            await settle()
            lanes.forget({TopicPartition("t", 0)})
            lanes.add(after)
            stage.end(before)
            await settle()
            assert lanes.positions() == {}
            stage.end(after)
            await settle()
            assert lanes.positions() == {TopicPartition("t", 0): 10}

    asyncio.run(play())


@pytest.mark.parametrize("partitions", [{TopicPartition("t", 0)}, set()])
def test_cancelled_handlers_are_not_waited_for(partitions: set[TopicPartition]) -> None:
    async def play() -> None:
        stage = Stage()
        async with asyncio.TaskGroup() as group:
            lanes = Lanes(stage.handle, 1, group)
            only = message(0, 0)
            lanes.add(only)
            drained = group.create_task(lanes.drain(partitions))
            await settle()
            lanes.abandon()
            await settle()
            assert drained.done()
            stage.end(only)

    asyncio.run(play())


def test_unfinished_offsets_are_known_in_order() -> None:
    messages = [message(0, 0, b"a"), message(0, 1, b"b"), message(0, 2, b"a"), message(1, 3)]

    async def play() -> None:
        stage = Stage()
        async with asyncio.TaskGroup() as group:
            lanes = Lanes(stage.handle, 4, group)
            for m in messages:
                lanes.add(m)
            await settle()
            stage.end(messages[1])
            await settle()
            lanes.forget({TopicPartition("t", 1)})
            assert lanes.unfinished() == [messages[0], messages[2]]
            for m in (messages[0], messages[3]):
                stage.end(m)
            await settle()
            stage.end(messages[2])

    asyncio.run(play())
