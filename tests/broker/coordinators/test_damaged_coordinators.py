"""Coordinators with damaged, mostly compacted logs: repaired, waited for, or loaded without the damage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import testing
from penstock.broker.app.broker import Broker
from penstock.broker.coordinators import shard_log as coordinator_log
from penstock.broker.healing.repair import Outcome, others_in_sync
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.model.ids import OFFSETS_TOPIC
from penstock.records.batch import HEADER_SIZE
from penstock.records.record import iter_batches
from penstock.storage.swap import Swap
from tests.broker.groups import commit, commit_when_it_can, committed, coordinator
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import make_topic
from tests.storage.logs import records

CONFIG = {"offsets.topic.num.partitions": "1", "log.cleaner.min.cleanable.ratio": "0.01"}
T = TypeVar("T")
WAITS = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.fixture(autouse=True)
def lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Offset ranges (from, to) that coordinators reported as lost."""
    said: list[tuple[int, int]] = []

    def error(event: str, **fields: int) -> None:
        if event == "coordinator_records_lost":
            said.append((fields["first_offset"], fields["next_offset"]))

    monkeypatch.setattr(coordinator_log.log, "error", error)
    yield said


def offsets_of(broker: Broker) -> Partition:
    partition = broker.stages.storage.partitions.find(OFFSETS_TOPIC, 0)
    assert isinstance(partition, Partition)
    return partition


async def commit_all(nodes: Cluster, *offsets: int, sealed: bool = True) -> int:
    """Commit offsets one by one and seal the segment on every replica. Returns the coordinator."""
    await make_topic(nodes, *sorted(nodes.brokers), min_isr=1)
    leader = (await coordinator(nodes, 1)).node_id
    for offset in offsets:
        await commit_when_it_can(nodes, leader, offset)
    end = len(offsets)
    # Followers hear with the next answer how far all is committed.
    await eventually(lambda: all(offsets_of(b).log.high_watermark == end for b in nodes.brokers.values()))
    for broker in nodes.brokers.values() if sealed else ():
        offsets_of(broker).log.roll()
    return leader


async def compact(broker: Broker) -> None:
    await broker.stages.replication.maintenance.clean()
    assert is_compacted(broker)


def is_compacted(broker: Broker) -> bool:
    return offsets_of(broker).log.segments.first.is_compacted


def rot(partition: Partition, nth: int = -1, *, at: int = HEADER_SIZE + 3) -> None:
    """Change a byte of a batch in the first segment, without a report of the damage."""
    segment = partition.log.segments.first
    file = segment.open_file()
    position, _ = list(iter_batches(file.pread(segment.size, 0)))[nth]
    (byte,) = file.pread(1, position + at)
    file.pwrite(bytes([byte ^ 4]), position + at)


def elect_again(broker: Broker) -> None:
    broker.stages.coordinators.groups.runtime.resigned(0)
    broker.stages.coordinators.groups.runtime.elected(0)


def who_else(leader: int) -> list[int]:
    return [node for node in (1, 2, 3) if node != leader]


@pytest.mark.process
@pytest.mark.parametrize(
    "compacted",
    [
        pytest.param(lambda leader: [leader], id="only here"),
        pytest.param(who_else, id="only elsewhere"),
        pytest.param(lambda _: [1, 2, 3], id="everywhere"),
    ],
)
def test_a_compacted_segment_is_repaired_before_it_is_loaded(compacted: Callable[[int], list[int]]) -> None:
    """Each replica compacts on its own, so a record may be at another position in another replica."""

    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40, 41, 42)
            for node in compacted(leader):
                await compact(nodes[node])
            rot(offsets_of(nodes[leader]))
            elect_again(nodes[leader])
            assert await committed(nodes, leader) == 42
            metrics, log = nodes[leader].stages.storage.metrics, offsets_of(nodes[leader]).log
            assert (metrics.corruption_found, metrics.corruption_repaired) == (1, 1)
            assert metrics.coordinator_ranges_lost == 0
            assert log.recovery.corruption == []
            assert records(log)[-1] == records(offsets_of(nodes[who_else(leader)[0]]).log)[-1]
            # It is there to stay, and the log can be compacted as any other.
            assert await commit(nodes, leader, 43) == ErrorCode.NONE
            await nodes[leader].stages.replication.maintenance.clean()
            await nodes.kill(leader)
            await nodes.start(leader)
            assert offsets_of(nodes[leader]).log.recovery.corruption == []
            assert records(offsets_of(nodes[leader]).log)[0].offset in (0, 2)

    run(main())


@pytest.mark.parametrize("at", [0, 8, 16, HEADER_SIZE + 3], ids=["offset", "length", "magic", "records"])
def test_any_damage_is_found_and_repaired(at: int) -> None:
    """Also in the active segment, which the scrubber does not read."""

    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40, 41, 42, sealed=False)
            log = offsets_of(nodes[leader]).log
            rot(offsets_of(nodes[leader]), 1, at=at)
            elect_again(nodes[leader])
            assert await committed(nodes, leader) == 42
            assert nodes[leader].stages.storage.metrics.corruption_repaired == 1
            assert [r.offset for r in records(log)] == [0, 1, 2]
            assert await commit(nodes, leader, 43) == ErrorCode.NONE

    run(main())


def test_each_damaged_record_of_a_segment_is_repaired_from_any_replica_that_has_it() -> None:
    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40, 41, 42, 43, 44)
            for nth in (1, 3):
                rot(offsets_of(nodes[leader]), nth)
            # Neither of the others has all of it.
            one, other = who_else(leader)
            rot(offsets_of(nodes[one]), 1)
            rot(offsets_of(nodes[other]), 3)
            elect_again(nodes[leader])
            assert await committed(nodes, leader) == 44
            assert nodes[leader].stages.storage.metrics.corruption_repaired == 2
            assert len(records(offsets_of(nodes[leader]).log)) == 5

    run(main())


def test_a_replica_with_damage_that_no_checksum_covers_is_not_trusted() -> None:
    """The batch has an offset far behind the range, so the replica seems to have no records in it."""

    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40, 41, 42, 43, 44)
            partition = offsets_of(nodes[leader])
            rot(partition, 1)
            rot(
                offsets_of(nodes[others_in_sync(nodes[leader].stages.healing.repairs, partition)[0]]), 1, at=6
            )
            elect_again(nodes[leader])
            assert await committed(nodes, leader) == 44
            assert [r.offset for r in records(partition.log)] == [0, 1, 2, 3, 4]

    run(main())


@pytest.mark.process
def test_records_that_an_absent_replica_may_have_are_waited_for() -> None:
    """The restart of a broker must not lose committed offsets."""

    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40, 41, 42)
            away, other = who_else(leader)
            await compact(nodes[leader])
            await nodes.kill(away)
            known = nodes[leader].stages.cluster.image.topics[OFFSETS_TOPIC].partitions[0]
            await eventually(lambda: away not in known.isr)
            rot(offsets_of(nodes[leader]))
            rot(offsets_of(nodes[other]))
            elect_again(nodes[leader])
            assert await commit(nodes, leader, 43) == WAITS
            assert nodes[leader].stages.storage.metrics.corruption_repaired == 0
            await nodes.start(away)
            assert await committed(nodes, leader) == 42
            assert nodes[leader].stages.storage.metrics.coordinator_ranges_lost == 0

    run(main())


def test_a_replica_that_returns_meanwhile_may_still_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40)
            partition, (away, _) = offsets_of(nodes[leader]), who_else(leader)
            known = nodes[leader].stages.cluster.image.topics[OFFSETS_TOPIC].partitions[0]
            rot(partition)
            await nodes[leader].stages.healing.scrubber.scrub(partition)

            async def nobody_has_it(*_: object) -> Outcome:
                known.isr.append(away)
                return Outcome.LOST

            monkeypatch.setattr("penstock.broker.healing.scrubber.rewrite_segment", nobody_has_it)
            known.isr.remove(away)
            assert await nodes[leader].stages.healing.scrubber.repair(partition) is Outcome.WAITS

    run(main())


def test_records_that_no_replica_has_are_given_up(lost: list[tuple[int, int]]) -> None:
    """Kafka's coordinator would not load. Here groups go on without the damaged offsets."""

    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40, 41, 42)
            for node in (1, 2, 3):
                rot(offsets_of(nodes[node]))
            elect_again(nodes[leader])
            assert await committed(nodes, leader) == 41
            assert lost == [(2, 3)]
            assert nodes[leader].stages.storage.metrics.coordinator_ranges_lost == 1
            assert await commit(nodes, leader, 50) == ErrorCode.NONE
            assert await committed(nodes, leader) == 50

    run(main())


@pytest.mark.process
@pytest.mark.parametrize("compacted", [False, True])
def test_a_single_broker_serves_the_readable_records(lost: list[tuple[int, int]], compacted: bool) -> None:
    async def main() -> None:
        async with cluster(1, config={**CONFIG, "offsets.topic.replication.factor": "1"}) as nodes:
            await commit_all(nodes, 40, 41, 42)
            if compacted:
                await compact(nodes[1])
            rot(offsets_of(nodes[1]))
            await nodes.stop(1)
            await nodes.start(1)
            assert await committed(nodes, 1) == (-1 if compacted else 41)
            assert lost == [(0 if compacted else 2, 3)]
            assert nodes[1].stages.storage.metrics.coordinator_ranges_lost == 1
            assert await commit(nodes, 1, 50) == ErrorCode.NONE
            assert await committed(nodes, 1) == 50

    run(main())


def test_new_damage_beside_known_damage_is_found(lost: list[tuple[int, int]]) -> None:
    async def main() -> None:
        async with cluster(1, config={**CONFIG, "offsets.topic.replication.factor": "1"}) as nodes:
            await commit_all(nodes, 40, 41, 42, 43, 44)
            partition = offsets_of(nodes[1])
            for nth, left in ((4, 43), (0, 43), (3, 42)):
                rot(partition, nth)
                elect_again(nodes[1])
                assert await committed(nodes, 1) == left
            assert lost == [(4, 5), (0, 1), (4, 5), (0, 1), (3, 5)]
            assert [damage[3:] for damage in partition.log.recovery.corruption] == [(0, 1), (3, 5)]
            found = partition.log.read(1, 1 << 20, upper=5)
            assert found is not None
            assert [header.base_offset for _, header in iter_batches(found.read())] == [1, 2]

    run(main())


@pytest.mark.process
def test_compaction_that_meets_damage_has_it_repaired_and_continues() -> None:
    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40, 41, 42)
            rot(offsets_of(nodes[leader]), 1)
            await nodes[leader].stages.replication.maintenance.clean()
            assert nodes[leader].stages.storage.metrics.corruption_repaired == 1
            await compact(nodes[leader])
            assert [r.offset for r in records(offsets_of(nodes[leader]).log)] == [2]

    run(main())


def test_damaged_segments_are_compacted_only_after_their_repair() -> None:
    """Both rewrite the same segments."""

    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40, 41, 42)
            partition, broker = offsets_of(nodes[leader]), nodes[leader]
            rot(offsets_of(nodes[leader]), 1)
            await broker.stages.healing.scrubber.scrub(partition)
            await broker.stages.replication.maintenance.clean()
            assert not is_compacted(broker)
            async with partition.rewriting:
                mending = asyncio.ensure_future(broker.stages.healing.scrubber.scrub_and_repair(partition))
                await asyncio.sleep(0.05)  # no repair may begin meanwhile
                assert broker.stages.storage.metrics.corruption_repaired == 0
            assert await mending is Outcome.REPAIRED

    run(main())


def test_a_cancelled_repair_leaves_no_segment_half_swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that resigns cancels the repair. The files of its swap must not block the next one."""

    async def main() -> None:
        async with cluster(3, config=CONFIG) as nodes:
            leader = await commit_all(nodes, 40, 41, 42)
            broker, partition = nodes[leader], offsets_of(nodes[leader])
            rot(partition, 1)
            loop = asyncio.get_running_loop()
            mending = loop.create_task(broker.stages.healing.scrubber.scrub_and_repair(partition))
            commit_swap = Swap.commit

            def commit_and_give_up(swap: Swap) -> None:
                commit_swap(swap)
                loop.call_soon_threadsafe(mending.cancel)

            monkeypatch.setattr(Swap, "commit", commit_and_give_up)
            with pytest.raises(asyncio.CancelledError):
                await mending
            await eventually(lambda: broker.stages.storage.metrics.corruption_repaired == 1)
            await eventually(lambda: not broker.stages.world.files.is_dir(f"{partition.log.path}/swap"))

    run(main())


@pytest.mark.process
def test_a_client_finds_its_offsets_after_a_damaged_replica_took_over() -> None:
    with testing.cluster(brokers=3, config={**CONFIG, "log.cleaner.backoff.ms": "20"}) as running:
        address = {"bootstrap.servers": running.bootstrap, "log_level": 0}
        admin = AdminClient(address)
        admin.create_topics([NewTopic("t", 1)])["t"].result(timeout=60)
        client = Consumer({**address, "group.id": "g"})
        for offset in (40, 41, 42):
            client.commit(offsets=[ClientPartition("t", 0, offset)], asynchronous=False)

        def on(node: int, look: Callable[[Broker], T]) -> T:
            thread = running._nodes[node]
            return thread.call(lambda: look(thread.broker)).result()

        def has_all(broker: Broker) -> bool:
            return offsets_of(broker).log.high_watermark == 3

        for node in running.wait_for_isr(OFFSETS_TOPIC):
            running.wait_until(partial(on, node, has_all))
            on(node, lambda b: offsets_of(b).log.roll())
            running.wait_until(partial(on, node, is_compacted))
        leader, successor, _ = on(
            1, lambda b: b.stages.cluster.image.topics[OFFSETS_TOPIC].partitions[0].replicas
        )
        assert running.leader(OFFSETS_TOPIC) == leader
        on(successor, lambda b: rot(offsets_of(b)))
        running.kill(leader)
        (committed,) = client.committed([ClientPartition("t", 0)], timeout=60)
        assert committed.offset == 42
        assert running.leader(OFFSETS_TOPIC) == successor
        assert on(successor, lambda b: b.stages.storage.metrics.corruption_repaired) == 1
        client.close()
