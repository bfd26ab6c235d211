"""The coordinator runtime where commits do not come, or topics go: who is told what, and who hangs."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.coordinators.replies import Question, Uncommitted
from penstock.broker.replica.flusher import Flusher
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import OFFSETS_TOPIC, TopicId
from penstock.net.deferred import Deferred
from penstock.wire.apis.offset_fetch import OffsetFetchResponseGroup
from penstock.wire.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.groups.test_runtime import answer, commit, fetch, fetched, offsets_partition, run, running


@pytest.fixture
def never_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is committed with `penstock.flush=group`: no sync ever starts."""
    monkeypatch.setattr(Flusher, "_start", lambda _: None)


@pytest.mark.usefixtures("never_durable")
def test_nobody_waits_for_ever_for_a_commit_that_does_not_come() -> None:
    """offsets.commit.timeout.ms: as in Kafka, members then look for a coordinator, and ask again."""

    async def test() -> None:
        async with running(penstock_flush="group", offsets_commit_timeout_ms="20") as broker:
            promised = [commit(broker, 1), fetch(broker)]
            await asyncio.sleep(0)
            assert offsets_partition(broker).log.end_offset == 1
            late = fetch(broker)
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            for each in (*promised, late):
                assert (await answer(each)).error_code == unavailable
            assert (await answer(fetch(broker))).error_code == unavailable, "it is still not committed"
            make_durable(broker)
            assert await fetched(broker) == 1

    run(test)


def test_who_comes_later_waits_as_long_as_who_was_first() -> None:
    async def test() -> None:
        waiting, told = Uncommitted(0.02), list[str]()
        response = OffsetFetchResponseGroup()
        first, second = asked("first", told), asked("second", told)
        waiting.add(1, [(first, response)])
        waiting.add(2, [(second, response)])
        assert waiting.committed(1) == [(first, response)]
        while waiting:  # noqa: ASYNC110 - its timer was set for the first
            await asyncio.sleep(0.001)
        assert told == ["second"]

    run(test)


@pytest.mark.usefixtures("never_durable")
def test_who_takes_over_tells_nothing_that_is_not_committed() -> None:
    """What the log holds may be lost with the next leader, even if an earlier one has written it."""

    async def test() -> None:
        async with running(penstock_flush="group") as broker:
            commit(broker, 7)
            await asyncio.sleep(0)
            assert offsets_partition(broker).log.end_offset == 1
            broker.groups.runtime.resigned(0)
            broker.groups.runtime.elected(0)
            early = fetch(broker)
            for _ in range(100):
                await asyncio.sleep(0.001)
                late = fetch(broker)
                assert isinstance(late, Deferred) and not late.done and not early.done
            make_durable(broker)
            response = await answer(early)
            assert response.topics[0].partitions[0].committed_offset == 7
            assert not isinstance(fetch(broker), Deferred)

    run(test)


def test_coordinators_of_an_offsets_topic_that_was_made_anew_meanwhile_stay() -> None:
    """A broker that lags learns of both at once, from a snapshot."""

    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            await recreate_offsets_topic(broker)
            assert 0 in broker.groups.runtime
            assert await fetched(broker) == -1
            await answer(commit(broker, 2))
            assert await fetched(broker) == 2

    run(test)


def make_durable(broker: Broker) -> None:
    partition = offsets_partition(broker)
    partition.flushed(partition.log.end_offset, partition.hidden_bytes)


def asked(name: str, told: list[str]) -> Question:
    """A question whose refusal is noted."""

    def refuse(_: ApiError) -> OffsetFetchResponseGroup:
        told.append(name)
        return OffsetFetchResponseGroup()

    return Question(refuse)


async def recreate_offsets_topic(broker: Broker) -> None:
    new_id = TopicId(b"another".ljust(16))
    records = [
        RemoveTopicRecord(topic_id=broker.image.topics[OFFSETS_TOPIC].id),
        TopicRecord(name=OFFSETS_TOPIC, topic_id=new_id),
        PartitionRecord(
            topic_id=new_id,
            partition_id=0,
            replicas=[broker.node_id],
            isr=[broker.node_id],
            leader=broker.node_id,
        ),
    ]
    for record in records:
        broker.image.apply(record, broker.image.offset + 1)
    await broker.node.loader.on_applied(records)
