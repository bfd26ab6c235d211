"""The runtime: leadership of partitions and deleted topics."""

from __future__ import annotations

from penstock.broker.app.broker import Broker
from penstock.model.errors import ErrorCode
from penstock.model.ids import OFFSETS_TOPIC, TopicId
from penstock.net.deferred import Deferred
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import Record, build_batch
from penstock.wire.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.broker.coordinators.counters import CounterShard, counting
from tests.broker.coordinators.offset_commits import GROUP, answer, commit, fetched, run, running


def test_a_partition_that_is_not_open_yet_is_not_settled() -> None:
    """The topic is in the image before its partitions are open."""

    async def test() -> None:
        async with running() as broker:
            assert broker.stages.coordinators.groups.runtime.is_settled(GROUP)
            broker.stages.coordinators.groups.runtime.resigned(0)
            assert not broker.stages.coordinators.groups.runtime.is_settled(GROUP)

    run(test)


def test_a_recreated_offsets_topic_keeps_its_coordinators() -> None:
    """A lagging broker learns of both changes at once, from a snapshot."""

    async def test() -> None:
        async with running() as broker:
            await answer(commit(broker, 1))
            await recreate_offsets_topic(broker)
            assert 0 in broker.stages.coordinators.groups.runtime
            assert await fetched(broker) == -1
            await answer(commit(broker, 2))
            assert await fetched(broker) == 2

    run(test)


async def recreate_offsets_topic(broker: Broker) -> None:
    new_id = TopicId(b"another".ljust(16))
    records = [
        RemoveTopicRecord(topic_id=broker.stages.cluster.image.topics[OFFSETS_TOPIC].id),
        TopicRecord(name=OFFSETS_TOPIC, topic_id=new_id),
        PartitionRecord(
            topic_id=new_id,
            partition_id=0,
            replicas=[broker.stages.config.node_id],
            isr=[broker.stages.config.node_id],
            leader=broker.stages.config.node_id,
        ),
    ]
    for record in records:
        broker.stages.cluster.image.apply(record, broker.stages.cluster.image.offset + 1)
    await broker.stages.cluster.node.loader.on_applied(records)


def test_replay_passes_producers_and_markers_to_the_shard() -> None:
    """Records of transactions count only if their producer's marker commits them."""
    batches = [
        counter_batch("plain", 1),
        counter_batch("committed", 2, producer_id=7, producer_epoch=1),
        counter_batch("aborted", 3, producer_id=8, producer_epoch=0),
        end_transaction(7, 1, committed=True),
        end_transaction(8, 0, committed=False),
        counter_batch("open", 4, producer_id=9, producer_epoch=5),
    ]

    async def test() -> None:
        async with counting(elect=False) as counters:
            counters.append(batches)
            counters.runtime.elected(0)
            names = ("plain", "committed", "aborted", "open")
            assert [(await answer(counters.read(name))).value for name in names] == [1, 2, 0, 0]
            counters.runtime.notify_all(check_replayed)

    def check_replayed(shard: CounterShard) -> None:
        assert shard.replayed == [
            (0, -1, -1, "plain", 1),
            (1, 7, 1, "committed", 2),
            (2, 8, 0, "aborted", 3),
            (5, 9, 5, "open", 4),
        ]
        assert shard.markers == [(7, 1, True), (8, 0, False)]

    run(test)


def test_any_coordinator_has_requests_that_wait_and_timers() -> None:
    async def test() -> None:
        async with counting() as counters:
            waits = counters.submit(lambda shard, reply_to: shard.wait_for("c", 0, reply_to))
            await answer(counters.add("c", 5))
            assert isinstance(waits, Deferred) and not waits.done
            assert counters.submit(lambda shard, _: shard.reset_after("c", 1)).value == 5
            assert (await answer(waits)).value == 0
            assert (await answer(counters.read("c"))).value == 0

    run(test)


def test_a_key_without_a_coordinator_here_is_refused() -> None:
    async def test() -> None:
        async with counting(elect=False) as counters:
            assert (await answer(counters.read("c"))).error_code == ErrorCode.NOT_COORDINATOR
            assert 0 not in counters.runtime and not counters.runtime.is_settled("any key")
            counters.runtime.elected(0)
            assert counters.read("c").value == 0
            assert [*counters.runtime.indexes()] == [0] and counters.runtime.is_settled("any key")

    run(test)


def counter_batch(name: str, value: int, *, producer_id: int = -1, producer_epoch: int = -1) -> bytes:
    has_producer = producer_id >= 0
    return build_batch(
        [Record(0, 1, name.encode(), str(value).encode())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0 if has_producer else -1,
        transactional=has_producer,
    )


def end_transaction(producer_id: int, producer_epoch: int, *, committed: bool) -> bytes:
    marker = EndTransaction(committed, coordinator_epoch=0)
    return build_end_transaction(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp=1)
