"""A mover with logs in memory: no message is lost or written twice, whatever fails, and none stops others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.replica.waiting_readers import WaitingReaders
from penstock.broker.shares.delay_mover import DelayCounts, DelayMover, MoverParts
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.records.batch import read_header
from penstock.records.codecs import Codec
from penstock.records.record import Record, build_batch, iter_batches, iter_records, open_batch, seal
from penstock.shares.delay_log import Plan, Target, build_plan
from penstock.shares.delay_schedule import DelaySchedule
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import AppendOrigin, Log
from tests.storage.compacted import InlineWorkers
from tests.storage.logs import NOW_MS, StillClock, append_checked, append_marker, marker, open_log, stored

DAY_MS = 86_400_000
#: the producer of `tests.storage.logs.marker`
TRANSACTION: dict[str, Any] = {
    "producer_id": 7,
    "producer_epoch": 0,
    "base_sequence": 0,
    "transactional": True,
}


class Cluster:
    """A delay partition, the partitions of topics, and the leader's mover."""

    def __init__(self, messages_max: int = 1000, **settings: Any) -> None:
        self.clock = StillClock()
        self.counts = DelayCounts()
        self.warnings: list[dict[str, Any]] = []
        self.topics: dict[str, Any] = {}
        self.topics_by_id: dict[TopicId, Any] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.logs: dict[tuple[str, int], Log] = {}
        self._messages_max = messages_max
        self._producer_id, self._topic_count = 500, 1
        #: false: records of the delay partition are not committed
        self.is_replicated = True
        #: attempts to write to a target: called before each
        self.before_write: Callable[[], Awaitable[ErrorCode | None]] | None = None
        self.log = open_log(clock=self.clock, **settings)
        partition: Any = SimpleNamespace(topic="later", index=0, name="later-0", leading=True, leader_epoch=0)
        partition.log, partition.readers = self.log, WaitingReaders(self.log)
        partition.advance_log_start = self._advance_log_start
        self.partition = partition
        self.mover: DelayMover
        self.task: asyncio.Task[None] | None = None

    # -- topics

    def create(self, name: str, partitions: int = 1, **settings: Any) -> None:
        self._topic_count += 1
        topic_id = TopicId(self._topic_count.to_bytes(16, "big"))
        topic = SimpleNamespace(name=name, id=topic_id, partitions=dict.fromkeys(range(partitions)))
        self.topics[name] = self.topics_by_id[topic_id] = topic
        for index in range(partitions):
            self.logs[name, index] = open_log(clock=self.clock, **settings)

    def delete(self, name: str) -> None:
        topic = self.topics.pop(name)
        del self.topics_by_id[topic.id]
        for index in topic.partitions:
            del self.logs[name, index]

    def values(self, topic: str, index: int = 0) -> list[bytes | None]:
        data = stored(self.logs[topic, index])
        return [
            record.value
            for position, header in iter_batches(data)
            for record in iter_records(data[position : position + header.size])
        ]

    # -- the delay partition

    def send(self, *values: bytes, at_ms: int = NOW_MS, key: bytes | None = None, **fields: Any) -> None:
        """Messages in one batch."""
        headers = (("penstock-deliver-at", b"%d" % at_ms),)
        records = [Record(i, NOW_MS, key, value, headers) for i, value in enumerate(values)]
        guard = NO_VERIFICATION if "transactional" in fields else None
        self.append(build_batch(records, **fields), AppendOrigin.CLIENT, guard)

    def append(
        self, batch: bytes, origin: AppendOrigin = AppendOrigin.COORDINATOR, guard: Any = None
    ) -> None:
        append_checked(self.log, memoryview(bytearray(batch)), origin, guard)
        self.wake()

    def wake(self) -> None:
        if self.is_replicated:
            self.log.advance_high_watermark(self.log.end_offset)
        self.partition.readers.wake(1)

    def _advance_log_start(self, offset: int) -> None:
        self.log.delete_records(max(offset, self.log.log_start_offset))

    async def append_here(self, topic: str, index: int, batch: bytes) -> ErrorCode:
        """As TopicWriter."""
        return await self.write(topic, index, batch)

    async def write(self, topic: str, index: int, batch: bytes) -> ErrorCode:
        """As TopicWriter."""
        if topic == "later":
            self.append(batch)
            return ErrorCode.NONE
        if self.before_write is not None and (code := await self.before_write()) is not None:
            return code
        log = self.logs.get((topic, index))
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            append_checked(log, memoryview(bytearray(batch)))
        except ApiError as e:
            return e.code
        return ErrorCode.NONE

    # -- the mover

    def _new_producer_id(self) -> int:
        self._producer_id += 1
        return self._producer_id

    async def lead(self, target: str = "orders") -> None:
        """The mover of another term takes over."""
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.partition.leader_epoch += 1
        image: Any = SimpleNamespace(topics=self.topics, topics_by_id=self.topics_by_id)
        writer: Any = self
        parts = MoverParts(
            image,
            self.clock,
            InlineWorkers(),
            writer,
            self._new_producer_id,
            lambda name: int(self.configs.get(name, {}).get("max.message.bytes", 1_048_588)),
            self.counts,
            lambda event, **fields: self.warnings.append(fields),
        )
        self.mover = DelayMover(self.partition, target, parts, DelaySchedule(self._messages_max))
        self.task = asyncio.get_running_loop().create_task(self.mover.run())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait; fails if the mover does."""
        assert self.task is not None
        async with asyncio.timeout(60):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.001)

    async def idle(self) -> None:
        """Wait until the mover has nothing to do: it has moved a last message, and the log is empty."""
        await self.until(lambda: self.log.log_start_offset == self.log.end_offset)


def run(play: Callable[[Cluster], Awaitable[None]], cluster: Cluster | None = None) -> Cluster:
    cluster = cluster or Cluster()

    async def played() -> None:
        await play(cluster)
        if cluster.task is not None:
            cluster.task.cancel()
            await asyncio.gather(cluster.task, return_exceptions=True)

    asyncio.run(played())
    return cluster


def test_messages_that_are_due_together_are_divided_by_their_size() -> None:
    """One batch of them would be larger than max.message.bytes of the target."""

    async def play(cluster: Cluster) -> None:
        cluster.create("orders", max_message_bytes=20_000)
        cluster.configs["orders"] = {"max.message.bytes": "20000"}
        for number in range(20):
            cluster.send(b"%06d" % number * 1000)
        await cluster.lead()
        await cluster.idle()
        assert cluster.values("orders") == [b"%06d" % number * 1000 for number in range(20)]
        data = stored(cluster.logs["orders", 0])
        assert [header.record_count for _, header in iter_batches(data)] == [3, 3, 3, 3, 3, 3, 2]

    assert run(play).counts.refused == 0


def test_a_refused_batch_is_divided() -> None:
    """The limit of the target was lowered after the plan."""

    async def play(cluster: Cluster) -> None:
        cluster.create("orders", max_message_bytes=8_000)
        for number in range(6):
            cluster.send(b"%d" % number * 5000)
        await cluster.lead()
        await cluster.idle()
        assert cluster.values("orders") == [b"%d" % number * 5000 for number in range(6)]

    run(play)


def test_a_message_that_the_target_refuses_does_not_stop_others() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders", max_message_bytes=2000)
        cluster.send(b"before")
        cluster.send(b"x" * 5000)
        cluster.send(b"after")
        await cluster.lead()
        await cluster.until(lambda: cluster.values("orders") == [b"before", b"after"])
        await cluster.until(lambda: cluster.counts.refused == 1)
        assert cluster.log.log_start_offset <= 1, "the message waits for a change of the target's configs"
        cluster.clock.ms += 61_000
        cluster.wake()
        await cluster.until(lambda: cluster.counts.refused == 2)
        cluster.clock.ms += 30 * DAY_MS
        cluster.wake()
        await cluster.until(lambda: cluster.counts.refused == 3)
        await cluster.until(lambda: cluster.mover.set_aside == 1)
        assert cluster.log.log_start_offset <= 1, "the message is not lost"
        assert len(cluster.warnings) == 4, "of a batch of three messages, and of three attempts"
        assert cluster.warnings[-1] == {
            "partition": "later-0",
            "offsets": (1,),
            "target": "orders",
            "error": "MESSAGE_TOO_LARGE",
        }

    run(play)


@pytest.mark.parametrize("late", ["due long ago", "an old message", "the clock is ahead"])
def test_a_message_that_is_late_is_not_lost_when_it_is_refused(late: str) -> None:
    """The target did not exist for days, a topic was replayed, or the wall clock is wrong."""

    async def play(cluster: Cluster) -> None:
        cluster.create("orders", max_message_bytes=2000)
        if late == "the clock is ahead":
            cluster.send(b"x" * 5000)
            cluster.clock.ms += 2 * DAY_MS
        else:
            due = b"%d" % (NOW_MS - 3 * DAY_MS)
            headers = (("penstock-deliver-at", due),) if late == "due long ago" else ()
            cluster.append(build_batch([Record(0, NOW_MS - 9 * DAY_MS, None, b"x" * 5000, headers)]))
        await cluster.lead()
        await cluster.until(lambda: cluster.counts.refused == 1)
        await cluster.until(lambda: cluster.mover.set_aside == 1)
        cluster.logs["orders", 0].reconfigure(open_log().config)
        cluster.clock.ms += 61_000
        cluster.wake()
        await cluster.idle()
        assert cluster.values("orders") == [b"x" * 5000]

    run(play)


def test_a_refused_message_is_delivered_if_the_configs_change() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders", max_message_bytes=2000)
        cluster.send(b"x" * 5000)
        await cluster.lead()
        await cluster.until(lambda: cluster.counts.refused == 1)
        cluster.logs["orders", 0].reconfigure(open_log().config)
        cluster.clock.ms += 61_000
        cluster.wake()
        await cluster.idle()
        assert (cluster.mover.set_aside, cluster.values("orders")) == (0, [b"x" * 5000])

    run(play)


def test_a_compressed_message_is_not_too_large_without_its_codec() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders", max_message_bytes=2000)
        cluster.configs["orders"] = {"max.message.bytes": "2000"}
        cluster.send(b"x" * 20_000, codec=Codec.ZSTD)
        await cluster.lead()
        await cluster.idle()
        assert cluster.values("orders") == [b"x" * 20_000]

    run(play)


def test_a_compressed_message_keeps_its_codec_if_the_leader_of_the_target_has_another_limit() -> None:
    """Brokers may differ in message.max.bytes."""

    async def play(cluster: Cluster) -> None:
        cluster.create("orders", max_message_bytes=2000)
        cluster.send(b"x" * 20_000, codec=Codec.ZSTD)
        await cluster.lead()
        await cluster.until(lambda: bool(cluster.counts.refused or cluster.values("orders")))
        assert (cluster.counts.refused, cluster.values("orders")) == (0, [b"x" * 20_000])

    run(play)


def test_a_delivery_time_that_is_no_timestamp_does_not_stop_others() -> None:
    """It is larger than a float can be."""

    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        cluster.send(b"never", at_ms=10**400)
        await cluster.lead()
        await cluster.until(lambda: len(cluster.mover._schedule) == 1)
        await asyncio.sleep(0)
        cluster.send(b"now")
        await cluster.until(lambda: cluster.values("orders") == [b"now"])

    run(play)


def test_a_batch_that_cannot_be_read_does_not_stop_others() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        header, data = open_batch(build_batch([Record(0, NOW_MS, None, b"bad")]))
        cluster.append(seal(header, b"\x7f" + data[1:]))
        cluster.send(b"good")
        await cluster.lead()
        await cluster.idle()
        assert cluster.values("orders") == [b"good"]

    run(play)


@pytest.mark.parametrize("committed", [True, False])
def test_only_committed_messages_are_moved(committed: bool) -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        cluster.send(b"first")
        cluster.send(b"in a transaction", **TRANSACTION)
        cluster.send(b"behind")
        await cluster.lead()
        await cluster.until(lambda: cluster.values("orders") == [b"first"])
        # Plans are behind the open transaction: the next leader knows them, too.
        await cluster.until(lambda: cluster.log.log_start_offset == 1)
        await cluster.lead()
        append_marker(cluster.log, marker(committed))
        cluster.wake()
        await cluster.idle()
        expected = [b"first", b"in a transaction", b"behind"] if committed else [b"first", b"behind"]
        assert cluster.values("orders") == expected

    run(play)


def test_plans_behind_an_open_transaction_are_known_to_the_next_leader() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        cluster.send(b"late", at_ms=NOW_MS + 1000)
        cluster.send(b"now")
        cluster.send(b"in a transaction", **TRANSACTION)
        await cluster.lead()
        await cluster.until(lambda: cluster.values("orders") == [b"now"])
        await cluster.lead()
        cluster.clock.ms += 2000
        cluster.wake()
        await cluster.until(lambda: cluster.values("orders") == [b"now", b"late"])
        append_marker(cluster.log, marker(False))
        cluster.wake()
        await cluster.idle()
        assert cluster.values("orders") == [b"now", b"late"]

    run(play)


def test_a_new_leader_waits_for_the_plans_of_earlier_leaders() -> None:
    """The high watermark of a new leader may be behind a plan that was committed and carried out."""

    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        topic = cluster.topics["orders"]
        cluster.send(b"m1")
        cluster.is_replicated = False
        plan = Plan(Target("orders", 0, topic.id), 77, 0, (0,))
        cluster.append(build_plan(plan, NOW_MS))
        written = build_batch(
            [Record(0, NOW_MS, None, b"m1")], producer_id=77, producer_epoch=0, base_sequence=0
        )
        append_checked(cluster.logs["orders", 0], memoryview(bytearray(written)))
        cluster.send(b"m2")
        await cluster.lead()
        for _ in range(20):
            cluster.wake()
            await asyncio.sleep(0)
        assert cluster.log.end_offset == 3, "nothing is planned yet"
        cluster.is_replicated = True
        cluster.wake()
        await cluster.idle()
        assert cluster.values("orders") == [b"m1", b"m2"]

    run(play)


def test_the_log_start_follows_with_an_idle_partition_of_the_target() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders", partitions=4)
        await cluster.lead()
        cluster.send(b"once", key=b"a")
        await cluster.idle()
        for _ in range(5):
            cluster.send(b"often", key=b"c")
            await cluster.idle()
        used = [index for index in range(4) if cluster.values("orders", index)]
        assert len(used) == 2
        start = cluster.log.log_start_offset
        await cluster.lead()
        cluster.send(b"often", key=b"c")
        await cluster.idle()
        assert cluster.log.log_start_offset > start

    run(play)


@pytest.mark.parametrize("topic_id", ["new", None])
def test_a_plan_for_a_deleted_target_ends(topic_id: str | None) -> None:
    """Its messages go to the present target."""

    async def play(cluster: Cluster) -> None:
        cluster.create("old")
        identity = None if topic_id is None else cluster.topics["old"].id
        cluster.send(b"m")
        cluster.append(build_plan(Plan(Target("old", 0, identity), 77, 0, (0,)), NOW_MS))
        cluster.delete("old")
        cluster.create("orders")
        if topic_id is not None:
            cluster.create("old")
        await cluster.lead("orders")
        await cluster.idle()
        assert cluster.values("orders") == [b"m"]

    run(play)


def test_a_target_is_deleted_while_its_partition_has_no_leader() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        cluster.send(b"m")
        attempts: list[int] = []

        async def unavailable() -> ErrorCode | None:
            attempts.append(1)
            return ErrorCode.LEADER_NOT_AVAILABLE if len(attempts) < 3 else None

        cluster.before_write = unavailable
        await cluster.lead()
        await cluster.until(lambda: len(attempts) == 1)
        cluster.delete("orders")
        cluster.create("orders")
        await cluster.idle()
        assert cluster.values("orders") == [b"m"]

    run(play)


def test_a_topic_that_is_no_longer_the_target_refuses_messages() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("old")
        cluster.create("orders")
        cluster.send(b"m")
        cluster.append(build_plan(Plan(Target("old", 0, cluster.topics["old"].id), 77, 0, (0,)), NOW_MS))
        answers = [ErrorCode.INVALID_REQUEST]

        async def refuse() -> ErrorCode | None:
            return answers.pop() if answers else None

        cluster.before_write = refuse
        await cluster.lead()
        await cluster.idle()
        assert (cluster.values("old"), cluster.values("orders")) == ([], [b"m"])

    run(play)


def test_a_target_that_has_lost_batches_gets_messages_with_another_producer_id() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        await cluster.lead()
        for value in (b"a", b"b"):
            cluster.send(value)
            await cluster.idle()
        cluster.logs["orders", 0].truncate_to(1)
        cluster.send(b"c")
        await cluster.idle()
        assert cluster.values("orders") == [b"a", b"c"]
        data = stored(cluster.logs["orders", 0])
        producers = {read_header(data, position).producer_id for position, _ in iter_batches(data)}
        assert len(producers) == 2

    run(play)


def test_a_plan_of_version_0_is_not_carried_out_twice() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        written = build_batch(
            [Record(0, NOW_MS, None, b"m")], producer_id=77, producer_epoch=0, base_sequence=4
        )
        append_checked(cluster.logs["orders", 0], memoryview(bytearray(written)))
        cluster.send(b"m")
        key, value = b"\x00\x00\x27\x10", b'[["orders",0],77,4,[0]]'
        cluster.append(build_batch([Record(0, NOW_MS, key, value)], control=True))
        await cluster.lead()
        await cluster.idle()
        assert cluster.values("orders") == [b"m"]

    run(play)


def test_deleted_records_are_not_moved() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        cluster.send(b"deleted", at_ms=NOW_MS + 1000)
        cluster.send(b"kept", at_ms=NOW_MS + 1000)
        await cluster.lead()
        await cluster.until(lambda: len(cluster.mover._schedule) == 2)
        cluster.log.delete_records(1)
        cluster.clock.ms += 2000
        cluster.wake()
        await cluster.idle()
        assert cluster.values("orders") == [b"kept"]

    run(play)


def test_more_messages_than_the_table_has_room_for() -> None:
    async def play(cluster: Cluster) -> None:
        cluster.create("orders")
        for number in range(120):
            cluster.send(b"%d" % number, at_ms=NOW_MS + 1000 + (number * 37) % 120)
        await cluster.lead()
        await cluster.until(lambda: cluster.mover._schedule.messages_end == 120)
        assert len(cluster.mover._schedule) <= 20
        cluster.clock.ms += 5000
        cluster.wake()
        await cluster.idle()
        assert cluster.values("orders") == [
            b"%d" % number for number in sorted(range(120), key=lambda number: (number * 37) % 120)
        ]

    run(play, Cluster(messages_max=20))


@pytest.mark.parametrize("seed", range(6))
def test_leaders_fail_at_any_write(seed: int) -> None:
    """Each message is in the target once, whether the last write was made or not."""
    rng = Random(seed)

    async def play(cluster: Cluster) -> None:
        cluster.create("orders", partitions=2)
        cluster.configs["orders"] = {"max.message.bytes": "1"}
        direct = cluster.write
        failed = asyncio.Event()

        async def failing(topic: str, index: int, batch: bytes) -> ErrorCode:
            fate = rng.random()
            code = await direct(topic, index, batch) if fate < 0.8 else ErrorCode.NONE
            if fate < 0.6:
                return code
            failed.set()
            await asyncio.Event().wait()
            raise AssertionError

        cluster.write = failing  # type: ignore[method-assign]
        for number in range(8):
            cluster.send(b"%d" % number, key=b"%d" % number, at_ms=NOW_MS + number)
        cluster.clock.ms += 100
        while cluster.log.log_start_offset < cluster.log.end_offset:
            failed.clear()
            await cluster.lead()
            await cluster.until(
                lambda: failed.is_set() or cluster.log.log_start_offset == cluster.log.end_offset
            )
        found = cluster.values("orders", 0) + cluster.values("orders", 1)
        assert sorted(map(int, filter(None, found))) == list(range(8))

    run(play)


def test_plans_are_not_sent_to_another_leader() -> None:
    """A leader that was replaced may know the new one before it resigns. The new mover has its own plans."""

    async def play(cluster: Cluster) -> None:
        direct = cluster.write

        async def append_here(topic: str, index: int, batch: bytes) -> ErrorCode:
            cluster.append(batch)
            return ErrorCode.NONE

        async def write(topic: str, index: int, batch: bytes) -> ErrorCode:
            assert topic != "later", "the leader of the delay topic may be another broker"
            return await direct(topic, index, batch)

        cluster.append_here = append_here  # type: ignore[method-assign]
        cluster.write = write  # type: ignore[method-assign]
        cluster.create("orders")
        cluster.send(b"a")
        await cluster.lead()
        await cluster.idle()
        assert cluster.values("orders") == [b"a"]

    run(play)
