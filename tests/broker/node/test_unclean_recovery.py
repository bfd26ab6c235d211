"""Unclean recovery on real brokers: the most complete replica leads, whichever is back first."""

from __future__ import annotations

import pytest

from penstock.broker.node import unclean_recovery
from penstock.metadata.image import NO_LEADER, TOPIC
from penstock.model.errors import ErrorCode
from penstock.records.batch import stamp
from penstock.records.record import iter_batches
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from penstock.wire.metadata_records import PartitionChangeRecord
from tests.broker.events import Events
from tests.broker.node.lost_tails import lose_tail, values_of
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import TOPIC as NAME
from tests.broker.replication import described, led_by, make_topic, produce, replica
from tests.broker.topic_configs import alter

VALUES = [b"one", b"two", b"three"]


async def fill(nodes: Cluster, leader: int = 1) -> None:
    """Three records on all replicas, each in a batch of its own, of an idempotent producer."""
    for sequence, value in enumerate(VALUES):
        sent = await produce(nodes, leader, value, producer_id=7, producer_epoch=0, base_sequence=sequence)
        assert sent.error_code == ErrorCode.NONE
    await eventually(lambda: all(replica(b).log.end_offset == len(VALUES) for b in nodes.brokers.values()))


async def kill_in_turn(nodes: Cluster, *killed: int) -> None:
    """Kill brokers; each is fenced before the next one goes."""
    controller = await nodes.settled()
    for node in killed:
        await nodes.kill(node)
        await eventually(lambda node=node: controller.stages.cluster.image.brokers[node].fenced)


def test_the_last_one_killed_has_lost_its_tail_and_another_replica_leads() -> None:
    """All are killed in turn; the last known leader comes back with less than the others have."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            await fill(nodes)
            path = replica(nodes[1]).log.path
            for node in (3, 2, 1):
                await nodes.kill(node)
            lose_tail(nodes, 1, f"{path}/{0:020}.log")
            await nodes.start()
            controller = await nodes.settled()
            await eventually(lambda: sorted(described(controller).isr) == [1, 2, 3])
            assert described(controller).leader != 1
            for broker in nodes.brokers.values():
                assert values_of(broker) == VALUES
            # Its producer goes on, and a batch that it sends again is known.
            for sequence, offset in ((2, 2), (3, 3)):
                sent = await produce(
                    nodes,
                    described(controller).leader,
                    b"next",
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=sequence,
                )
                assert (sent.error_code, sent.base_offset) == (ErrorCode.NONE, offset)

    run(main())


def raise_epoch(nodes: Cluster, node: int, path: str) -> None:
    """A bit of the leader epoch of the last batch changes; no checksum covers it."""
    data = nodes.disks[node].read(path)
    position, header = list(iter_batches(data))[-1]
    epoch = header.leader_epoch | (header.leader_epoch + 1)
    damaged = bytearray(data)
    stamp(damaged, position, header.base_offset, epoch)
    opened = nodes.disks[node].open(path)
    opened.truncate(0)
    opened.append(bytes(damaged))
    opened.close()


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_a_leader_epoch_that_no_other_replica_knows_makes_no_log_complete(damaged: int) -> None:
    """All are killed; one replica loses its last batch, and the epoch of the batch before is higher."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            await fill(nodes)
            path = f"{replica(nodes[damaged]).log.path}/{0:020}.log"
            for node in (3, 2, 1):
                await nodes.kill(node)
            lose_tail(nodes, damaged, path)
            opened = nodes.disks[damaged].open(path)
            *_, (position, header) = iter_batches(nodes.disks[damaged].read(path))
            opened.truncate(position + header.size)
            raise_epoch(nodes, damaged, path)
            await nodes.start()
            controller = await nodes.settled()
            await eventually(lambda: sorted(described(controller).isr) == [1, 2, 3])
            for broker in nodes.brokers.values():
                assert values_of(broker) == VALUES

    run(main())


def test_a_leader_is_elected_when_the_last_replica_is_back_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(unclean_recovery.log, "warning", lambda event, **f: events.append((event, f)))
    monkeypatch.setattr(unclean_recovery, "_QUIET_MS", 10)
    monkeypatch.setattr(unclean_recovery, "_REMIND_MS", 50)

    async def main() -> None:
        nodes = Cluster([1], [2, 3, 4])
        try:
            await nodes.start()
            await make_topic(nodes, 2, 3, 4)
            await kill_in_turn(nodes, 4, 3, 2)
            nodes.disks[2].rmtree(f"/data/topics/{NAME}")
            for node in (2, 3):
                await nodes.start(node)
            waits = {"broker 4": "the broker is not up"}
            await eventually(lambda: any(fields.get("waiting_for") == waits for _, fields in events))
            assert {event for event, _ in events} == {"unclean_recovery_waits"}
            assert all("unclean.recovery.strategy=aggressive" in str(fields["hint"]) for _, fields in events)
            assert described(nodes[1]).leader == NO_LEADER
            await nodes.start(4)
            await eventually(lambda: described(nodes[1]).leader != NO_LEADER)
        finally:
            await nodes.close()

    run(main())


def test_an_unclean_election_chooses_the_most_complete_replica_that_is_up() -> None:
    """Of 2, 3 and 4, of which 2 led last: 3 is the first in the list, and its disk is empty."""

    async def main() -> None:
        nodes = Cluster([1], [2, 3, 4])
        try:
            await nodes.start()
            await make_topic(nodes, 3, 4, 2)
            assert (await produce(nodes, 3, b"one")).error_code == ErrorCode.NONE
            await kill_in_turn(nodes, 3, 4, 2)
            nodes.disks[3].rmtree(f"/data/topics/{NAME}")
            await nodes.start(3)
            await nodes.start(4)
            assert described(nodes[1]).leader == NO_LEADER
            request = ElectLeadersRequest(
                election_type=1, topic_partitions=[TopicPartitions(topic=NAME, partitions=[0])]
            )
            response = await nodes.call(4, ELECT_LEADERS, request)
            ((result,),) = [t.partition_result for t in response.replica_election_results]
            assert (result.error_code, result.error_message) == (0, None)
            await eventually(lambda: described(nodes[1]).leader == 4)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [3, 4])
            assert values_of(nodes[3]) == values_of(nodes[4]) == [b"one"]
        finally:
            await nodes.close()

    run(main())


def test_a_change_of_the_strategy_takes_effect_at_once() -> None:
    async def main() -> None:
        nodes = Cluster([1], [2, 3])
        try:
            await nodes.start()
            await make_topic(nodes, 2, 3, configs={"unclean.recovery.strategy": "none"})
            await kill_in_turn(nodes, 3, 2)
            await nodes.start(3)
            key = "unclean.recovery.strategy"
            assert await alter(nodes, 3, TOPIC, NAME, key, "aggressive") == ErrorCode.NONE
            await eventually(lambda: described(nodes[1]).leader == 3)
        finally:
            await nodes.close()

    run(main())


def test_a_timeout_ends_the_waiting() -> None:
    async def main() -> None:
        nodes = Cluster([1], [2, 3], config={"unclean.recovery.timeout.ms": "300"})
        try:
            await nodes.start()
            await make_topic(nodes, 2, 3)
            await kill_in_turn(nodes, 3, 2)
            # Both have registered after an unclean stop, and one is gone again.
            change = PartitionChangeRecord(
                topic_id=described(nodes[1]).topic_id, partition_id=0, eligible_leader_replicas=[]
            )
            await nodes[1].stages.cluster.node.controller.change(lambda: ([change], None))
            await nodes.start(3)
            await eventually(lambda: described(nodes[1]).leader == 3)
        finally:
            await nodes.close()

    run(main())


def test_a_new_controller_goes_on_with_the_recovery() -> None:
    async def main() -> None:
        async with cluster(3, observers=2) as nodes:
            await make_topic(nodes, 4, 5)
            await kill_in_turn(nodes, 5, 4)
            await nodes.start(4)
            first = await nodes.settled()
            assert described(first).leader == NO_LEADER
            await nodes.kill(first.stages.config.node_id)
            second = await nodes.settled()
            await nodes.start(5)
            await eventually(lambda: described(second).leader in (4, 5))
            await eventually(lambda: sorted(described(second).isr) == [4, 5])

    run(main())


def test_many_partitions_get_their_leaders() -> None:
    async def main() -> None:
        nodes = Cluster([1], [2, 3])
        try:
            await nodes.start()
            await make_topic(nodes, 2, 3, partitions=300)
            await kill_in_turn(nodes, 3, 2)
            await nodes.start(2, 3)
            partitions = nodes[1].stages.cluster.image.topics[NAME].partitions.values()
            await eventually(lambda: all(p.leader != NO_LEADER for p in partitions))
            await eventually(lambda: all(sorted(p.isr) == [2, 3] for p in partitions))
        finally:
            await nodes.close()

    run(main())


def test_a_topic_that_accepts_losses_truncates_the_returned_leader(events: Events) -> None:
    async def main() -> None:
        nodes = Cluster([1], [2, 3])
        try:
            await nodes.start()
            await make_topic(nodes, 2, 3, min_isr=1, configs={"unclean.leader.election.enable": "true"})
            assert (await produce(nodes, 2, b"both")).error_code == ErrorCode.NONE
            await kill_in_turn(nodes, 3)
            assert (await produce(nodes, 2, b"only 2")).error_code == ErrorCode.NONE
            await kill_in_turn(nodes, 2)
            await nodes.start(3)
            await led_by(nodes, 3)
            assert (await produce(nodes, 3, b"new")).error_code == ErrorCode.NONE
            await nodes.start(2)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [2, 3])
            assert values_of(nodes[2]) == [b"both", b"new"]
        finally:
            await nodes.close()

    run(main())
    assert [fields["offset"] for _, fields in events.of("replica_truncated")] == [1]
    assert events.of("unclean_leader")
