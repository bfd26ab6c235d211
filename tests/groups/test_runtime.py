"""The coordinator runtime over real logs: what is answered when, and what happens when the log refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.coordinators import replies as coordinator_answers
from penstock.broker.coordinators import shard_host as coordinator_seat
from penstock.broker.coordinators import shard_log as coordinator_log
from penstock.broker.coordinators.group_coordinator import java_hash
from penstock.broker.coordinators.replies import Question
from penstock.broker.coordinators.shard_log import Loader
from penstock.broker.replica.partition import Partition
from penstock.groups.ledger import Client
from penstock.groups.shard import GroupShard
from penstock.groups.timers import TimerKey
from penstock.model.config import BrokerConfig
from penstock.model.errors import ApiError, ErrorCode, InvalidConfig, NotLeaderOrFollower, StorageError
from penstock.model.ids import OFFSETS_TOPIC
from penstock.net.deferred import Deferred
from penstock.records.record import iter_batches
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.wire.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from tests.storage.logs import note_rot

CLIENT = Client("c", "/h", 9)
GROUP = "g"


@asynccontextmanager
async def running(**config: str) -> AsyncIterator[Broker]:
    """A broker in this event loop, with an offsets topic of one partition."""
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "1"}
    if "log_dirs" not in config:
        settings["penstock.memory"] = "true"
    settings |= {name.replace("_", "."): value for name, value in config.items()}
    parsed = BrokerConfig(settings)
    broker = await Broker.open(parsed, system_world(parsed))
    await broker.start()
    try:
        await broker.groups.ensure_topic()
        yield broker
    finally:
        await broker.stop()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


def offsets_partition(broker: Broker) -> Partition:
    partition = broker.partitions.find(OFFSETS_TOPIC, 0)
    assert isinstance(partition, Partition)
    return partition


def commit(broker: Broker, offset: int, metadata: str = "") -> Any:
    request = OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )
    return broker.groups.ask(GROUP, lambda shard, _: shard.commit(request, CLIENT), refusal)


def refusal(error: ApiError) -> OffsetFetchResponseGroup:
    """Any response that carries a code will do."""
    return OffsetFetchResponseGroup(error_code=error.code)


def fetch(broker: Broker) -> Any:
    request = OffsetFetchRequestGroup(
        group_id=GROUP, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    )
    return broker.groups.ask(GROUP, lambda shard, _: shard.fetch(request), refusal)


async def answer(promised: Any) -> Any:
    """What was promised, once it is there."""
    if not isinstance(promised, Deferred):
        return promised
    arrived: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    promised.then(arrived.set_result)
    return await arrived


async def fetched(broker: Broker) -> int:
    response = await answer(fetch(broker))
    assert response.error_code == ErrorCode.NONE
    return int(response.topics[0].partitions[0].committed_offset)


def batches(broker: Broker) -> list[int]:
    """The number of records in each batch of the offsets topic."""
    log = offsets_partition(broker).log
    found = log.read(0, 1 << 20, upper=log.end_offset)
    return [] if found is None else [header.record_count for _, header in iter_batches(found.read())]


def test_what_one_turn_of_the_loop_decides_is_one_batch() -> None:
    async def test() -> None:
        async with running() as broker:
            promised = [commit(broker, offset) for offset in (1, 2, 3)]
            assert batches(broker) == []
            for each in promised:
                assert isinstance(await answer(each), OffsetCommitResponse)
            assert batches(broker) == [3]
            assert await fetched(broker) == 3

    run(test)


def test_a_read_of_what_is_committed_is_answered_at_once() -> None:
    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            assert not isinstance(fetch(broker), Deferred)

    run(test)


def test_nothing_is_told_before_the_disk_has_it() -> None:
    """penstock.flush=group: neither the commit nor a later read that sees it."""

    async def test() -> None:
        async with running(penstock_flush="group") as broker:
            partition = offsets_partition(broker)
            promised, read = commit(broker, 5), fetch(broker)
            told: list[tuple[str, int]] = []
            promised.then(lambda _: told.append(("commit", partition.log.high_watermark)))
            read.then(lambda _: told.append(("read", partition.log.high_watermark)))
            await asyncio.sleep(0)
            assert partition.log.end_offset == 1 and not told
            assert await fetched(broker) == 5
            assert told == [("commit", 1), ("read", 1)]

    run(test)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageError("no space left"), ErrorCode.NOT_COORDINATOR),
        (NotLeaderOrFollower(), ErrorCode.NOT_COORDINATOR),
        (ApiError(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiError(ErrorCode.MESSAGE_TOO_LARGE), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_the_log_refuses_has_not_happened(
    monkeypatch: pytest.MonkeyPatch, error: ApiError, code: ErrorCode
) -> None:
    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))

            def refuse(*_: object) -> None:
                raise error

            with monkeypatch.context() as broken:
                broken.setattr(Partition, "append", refuse)
                promised = [commit(broker, 2), fetch(broker)]
                assert [(await answer(each)).error_code for each in promised] == [code, code]
            assert await fetched(broker) == 1
            await answer(commit(broker, 3))
            assert await fetched(broker) == 3

    run(test)


def test_a_log_that_has_refused_for_hours_is_still_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_seat, "_RELOAD_LIMIT_S", 0.0)

    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            with monkeypatch.context() as full:
                full.setattr(coordinator_seat, "append_records", refuse)
                for _ in range(1100):
                    await answer(commit(broker, 2))
                    async with asyncio.timeout(60):
                        while getattr(fetch(broker), "error_code", 0):  # noqa: ASYNC110
                            await asyncio.sleep(0)
            await answer(commit(broker, 3))
            assert await fetched(broker) == 3

    run(test)


def test_a_failed_sync_costs_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(penstock_flush="group") as broker:
            await answer(commit(broker, 1))
            health = offsets_partition(broker).flusher.health
            promised = commit(broker, 2)
            health.sync_failed(OSError(5, "input/output error"), "a disk died")
            assert (await answer(promised)).error_code == ErrorCode.NOT_COORDINATOR
            assert (await answer(commit(broker, 3))).error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_coordinator_without_a_disk_tells_nothing_from_memory() -> None:
    """Another one has taken over and knows more; who had the metadata on that disk does not hear of it."""

    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            assert await fetched(broker) == 1
            health = offsets_partition(broker).flusher.health
            health.sync_failed(OSError(5, "input/output error"), "a disk died")
            assert fetch(broker).error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_a_partition_that_is_gone_refuses_everyone() -> None:
    async def test() -> None:
        async with running(penstock_flush="group") as broker:
            promised = commit(broker, 1)
            await asyncio.sleep(0)
            offsets_partition(broker).retire()
            assert (await answer(promised)).error_code == ErrorCode.NOT_COORDINATOR
            assert (await answer(fetch(broker))).error_code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_who_asks_a_restarted_broker_waits_until_it_knows(tmp_path: Path) -> None:
    """Not even the first is refused: some clients do not take that well."""

    async def test() -> None:
        async with running(log_dirs=str(tmp_path)) as broker:
            for offset in range(50):
                await answer(commit(broker, offset, "x" * 1000))
        async with running(log_dirs=str(tmp_path)) as broker:
            assert await fetched(broker) == 49

    run(test)


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), (StorageError("gone"), ErrorCode.NOT_COORDINATOR)],
)
def test_a_load_that_takes_long_or_fails_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, error: StorageError | None, code: ErrorCode
) -> None:
    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            loads = asyncio.Event()

            async def load(*_: object) -> None:
                await loads.wait()
                if error is not None:
                    raise error

            monkeypatch.setattr(Loader, "load", load)
            monkeypatch.setattr(coordinator_seat, "_LOAD_PATIENCE_S", 0.01 if error is None else 60)
            broker.groups.runtime.resigned(0)
            broker.groups.runtime.elected(0)
            waits = fetch(broker)
            assert isinstance(waits, Deferred) and not waits.done
            if error is not None:
                loads.set()
            assert (await answer(waits)).error_code == code
            assert fetch(broker).error_code == code

    run(test)


@pytest.mark.parametrize(("damaged", "left"), [(0, 3), (1, 3), (2, 2)])
def test_a_lone_log_that_is_damaged_is_loaded_as_far_as_it_is_sound(
    monkeypatch: pytest.MonkeyPatch, damaged: int, left: int
) -> None:
    """Nobody can mend it, and all groups would be without a coordinator for a few offsets."""
    said: list[tuple[str, object]] = []
    monkeypatch.setattr(
        coordinator_log.log,
        "error",
        lambda event, **fields: said.append((event, fields.get("first_offset"))),
    )

    async def test() -> None:
        async with running() as broker:
            for offset in (1, 2, 3):
                await answer(commit(broker, offset))
            note_rot(offsets_partition(broker).log, damaged)
            broker.groups.runtime.resigned(0)
            broker.groups.runtime.elected(0)
            assert await fetched(broker) == left
            assert said == [("coordinator_log_damaged", None), ("coordinator_records_lost", damaged)]
            assert broker.metrics.coordinator_ranges_lost == 1

    run(test)


def test_a_log_that_goes_on_refusing_is_not_replayed_in_a_busy_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: what is loaded may have something to write at once, and be refused again."""

    def refuse(*_: object) -> None:
        raise StorageError("the disk is full")

    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            with monkeypatch.context() as full:
                full.setattr(coordinator_seat, "append_records", refuse)
                assert (await answer(commit(broker, 2))).error_code == ErrorCode.NOT_COORDINATOR
                assert await fetched(broker) == 1, "once it is replayed at once"
                assert (await answer(commit(broker, 3))).error_code == ErrorCode.NOT_COORDINATOR
                assert fetch(broker).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            while getattr(fetch(broker), "error_code", ErrorCode.NONE) != ErrorCode.NONE:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert await fetched(broker) == 1
            assert (await answer(commit(broker, 4))).topics[0].partitions[0].error_code == ErrorCode.NONE

    run(test)


def test_nobody_is_sent_to_a_coordinator_that_is_not_there_yet() -> None:
    """Its topic is in the image before its partitions are open."""

    async def test() -> None:
        async with running() as broker:
            assert broker.groups.is_settled(GROUP)
            broker.groups.runtime.resigned(0)
            assert not broker.groups.is_settled(GROUP)

    run(test)


def test_more_than_a_batch_may_hold_goes_into_several() -> None:
    async def test() -> None:
        async with running(message_max_bytes="5000") as broker:
            promised = [commit(broker, offset, "x" * 2000) for offset in range(5)]
            for each in promised:
                assert isinstance(await answer(each), OffsetCommitResponse)
            assert batches(broker) == [2, 2, 1]
            assert await fetched(broker) == 4

    run(test)


def test_an_assignor_that_nobody_has_keeps_the_broker_from_starting() -> None:
    config = BrokerConfig({"group.consumer.assignors": "uniform,magic", "penstock.memory": "true"})
    with pytest.raises(InvalidConfig, match="'magic'"):
        asyncio.run(Broker.open(config, system_world(config)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("group", 98629247), ("polygenelubricants", 0), ("é", 233), ("\U0001f30a", 1773134)],
)
def test_groups_live_where_kafka_looks_for_them(text: str, expected: int) -> None:
    """Java's hash; "polygenelubricants" has the one hash that has no absolute value."""
    assert java_hash(text) == expected


def test_a_crowd_is_answered_in_order_and_a_few_at_a_time() -> None:
    """So that a large group's round does not keep the event loop from everybody else."""

    async def test() -> None:
        async with running() as broker:
            answered = crowd(broker, 10)
            turns = []
            while len(answered) < 10:
                before = len(answered)
                await asyncio.sleep(0)
                turns.append(len(answered) - before)
            assert answered == [(number, ErrorCode.NONE) for number in range(10)]
            assert max(turns) <= 4

    run(test)


def test_the_end_of_a_round_is_told_to_a_few_members_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their answers are not even made before, and others' answers do not wait behind them."""
    monkeypatch.setattr(coordinator_answers, "PACE_S", 3600)

    async def test() -> None:
        async with running() as broker:
            askers: list[Question] = []
            told: list[int] = []
            made: list[int] = []

            def make(number: int) -> OffsetFetchResponseGroup:
                made.append(number)
                return OffsetFetchResponseGroup()

            def end_round(shard: GroupShard) -> None:
                shard.outbox.replies += [(asker, partial(make, n)) for n, asker in enumerate(askers)]

            for number in range(10):
                waits = broker.groups.ask(GROUP, lambda _, asker: askers.append(asker), refusal)
                waits.then(lambda _, number=number: told.append(number))
            broker.groups.runtime.tell_all(end_round)
            await answer(commit(broker, 1))
            await answer(commit(broker, 2))
            assert told == made == [0, 1, 2, 3]
            broker.groups.runtime.resign_all()
            assert told == made == [*range(10)]

    run(test)


def test_a_few_timers_expire_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever came at once, as when a machine with a thousand members dies."""

    async def test() -> None:
        async with running() as broker:
            expired: list[TimerKey] = []
            turns: list[int] = []

            def begin(shard: GroupShard) -> None:
                for number in range(100):
                    shard.timers.schedule(("kind", str(number)), 0)

            monkeypatch.setattr(GroupShard, "time_is_up", lambda _, key: expired.append(key))
            broker.groups.runtime.tell_all(begin)
            while len(expired) < 100:
                before = len(expired)
                await asyncio.sleep(0)
                turns.append(len(expired) - before)
            assert max(turns) <= 16

    run(test)


def test_a_record_that_cannot_be_made_is_told_to_nobody() -> None:
    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))

            def fail() -> tuple[bytes, bytes]:
                raise OverflowError("a length that does not fit")

            def decide(shard: GroupShard, _: object) -> OffsetFetchResponseGroup:
                shard.outbox.records.append(fail)
                return OffsetFetchResponseGroup()

            promised = broker.groups.ask(GROUP, decide, refusal)
            assert (await answer(promised)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert await fetched(broker) == 1

    run(test)


def test_whoever_only_waits_for_its_turn_is_not_refused() -> None:
    """What it asked for is in the log: it would be told otherwise."""

    async def test() -> None:
        async with running() as broker:
            answered = crowd(broker, 10)
            await asyncio.sleep(0)  # they are written, and the first are answered
            assert 0 < len(answered) < 10
            broker.groups.runtime.resign_all()
            assert answered == [(number, ErrorCode.NONE) for number in range(10)]

    run(test)


def crowd(broker: Broker, size: int) -> list[tuple[int, int]]:
    """Commit often in one turn; (number, error) of each commit as it is answered."""
    answered: list[tuple[int, int]] = []

    def note(number: int, response: Any) -> None:
        if isinstance(response, OffsetCommitResponse):
            answered.append((number, response.topics[0].partitions[0].error_code))
        else:
            answered.append((number, response.error_code))

    for number in range(size):
        commit(broker, number).then(partial(note, number))
    return answered
