"""The transaction coordinator of a broker: decided transactions complete when its leadership changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode, StorageError
from penstock.model.ids import TopicId
from penstock.transactions.initialization import Initialization
from penstock.transactions.shard import Addition
from penstock.wire.apis.end_txn import EndTxnResponse
from penstock.wire.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.broker.coordinators.offset_commits import answer, error_response, run, running

ID = "x"
TOPIC_ID = TopicId(b"a topic".ljust(16))


def apply(broker: Broker, *records: Any) -> None:
    for record in records:
        broker.stages.cluster.image.apply(record, broker.stages.cluster.image.offset + 1)


async def decide(broker: Broker) -> None:
    """Commit a transaction whose one partition has no leader: its marker is retried."""
    await broker.stages.coordinators.transactions.runtime.topic.ensure()
    apply(
        broker,
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(topic_id=TOPIC_ID, partition_id=0, replicas=[9], isr=[9], leader=-1),
    )
    runtime = broker.stages.coordinators.transactions.runtime
    begun = None
    while begun is None or begun.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        begun = await answer(
            runtime.submit(
                ID, lambda shard, _: shard.init_producer_id(ID, Initialization(1000)), error_response
            )
        )
        await asyncio.sleep(0)
    producer = (begun.producer_id, begun.producer_epoch)
    addition = Addition(ID, *producer, frozenset({("t", 0)}), 1)

    def add(shard: Any, pending: Any) -> Any:
        return shard.add_partitions(addition, lambda code: EndTxnResponse(error_code=code), pending)

    assert (await answer(runtime.submit(ID, add, error_response))).error_code == ErrorCode.NONE
    ended = runtime.submit(ID, lambda shard, _: shard.end_transaction(ID, *producer, True, 1), error_response)
    assert (await answer(ended)).error_code == ErrorCode.NONE


async def state(broker: Broker) -> str:
    found = await answer(
        broker.stages.coordinators.transactions.runtime.submit(
            ID, lambda shard, _: shard.describe(ID), error_response
        )
    )
    return str(found.transaction_state)


def own_partition(broker: Broker) -> tuple[int, Partition]:
    index = broker.stages.coordinators.transactions.runtime.topic.partition_for(ID)
    partition = broker.stages.coordinators.transactions.runtime.partition(index)
    assert partition is not None
    return index, partition


async def until_complete(broker: Broker) -> None:
    assert await state(broker) == "PrepareCommit"
    apply(broker, RemoveTopicRecord(topic_id=TOPIC_ID))
    while await state(broker) != "CompleteCommit":  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_a_rise_of_the_leader_epoch_loses_no_marker() -> None:
    """A reassignment that removes a replica raises the epoch, and the leader stays the same."""

    async def test() -> None:
        async with running(transaction_state_log_num_partitions="1") as broker:
            await decide(broker)
            _, partition = own_partition(broker)
            partition.lead(partition.leader_epoch + 1, None)
            await until_complete(broker)

    run(test)


def test_a_reloaded_shard_sends_its_markers_in_place_of_the_earlier_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A failed append makes the host load the log again, in the same leader epoch."""

    def refuse(*_: object) -> None:
        raise StorageError("no space left")

    async def test() -> None:
        async with running(transaction_state_log_num_partitions="1") as broker:
            await decide(broker)
            index, _ = own_partition(broker)
            runtime = broker.stages.coordinators.transactions.runtime
            earlier = runtime.shard(index)
            with monkeypatch.context() as broken:
                broken.setattr(Partition, "append", refuse)
                other = runtime.submit(
                    ID, lambda shard, _: shard.init_producer_id("other", Initialization(1000)), error_response
                )
                assert (await answer(other)).error_code == ErrorCode.NOT_COORDINATOR
            await until_complete(broker)
            assert runtime.shard(index) is not earlier

    run(test)
