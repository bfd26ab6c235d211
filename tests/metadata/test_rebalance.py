"""Plans that even out the load."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.metadata.image import ClusterImage
from penstock.metadata.rebalance import Move, plan_evacuation, plan_rebalance
from penstock.metadata.topics import Defaults, NewTopic, create_topic
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.steps import at_once
from penstock.wire.metadata_records import (
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tests.amounts import amount
from tests.metadata.moves import carry_out, copies
from tests.metadata.sites import Site, cluster, create, sites


def held(image: ClusterImage) -> Counter[int]:
    return Counter(node for _, node in copies(image))


def leads(image: ClusterImage) -> Counter[int]:
    return Counter(partition.replicas[0] for partition in image.partitions)


def admit(image: ClusterImage, where: list[Site]) -> None:
    """Let all brokers of those sites be in the cluster."""
    image.brokers.update(cluster(where).brokers)


def test_a_new_broker_receives_its_share_and_nothing_else_moves() -> None:
    """The seeds' consistent hashing: of n brokers the new one gets about 1/n."""
    image = cluster([("", str(n)) for n in range(4)])
    create(image, "t", 100, 3)
    before = copies(image)
    image.apply(RegisterBrokerRecord(broker_id=5, fenced=False), 999)

    carry_out(image, plan_rebalance(image, {}))

    moved = copies(image) - before
    assert {node for _, node in moved} == {5}
    assert 54 <= len(moved) <= 66
    assert all(54 <= count <= 66 for count in held(image).values())
    assert all(18 <= count <= 22 for count in leads(image).values())
    assert plan_rebalance(image, {}) == []


@pytest.mark.parametrize(
    ("before", "added", "partitions", "factor"), [(3, 3, 8, 3), (3, 3, 100, 3), (2, 4, 12, 2), (5, 5, 50, 3)]
)
def test_brokers_that_are_added_at_once_receive_their_shares_by_one_plan(
    before: int, added: int, partitions: int, factor: int
) -> None:
    """Also where more replicas have to move than there are partitions."""
    where = [("", str(n)) for n in range(before + added)]
    image = cluster(where[:before])
    create(image, "t", partitions, factor)
    was = copies(image)
    admit(image, where)

    carry_out(image, plan_rebalance(image, {}))

    share = partitions * factor / (before + added)
    assert all(abs(held(image)[node] - share) <= max(1, share / 10) for node in image.brokers)
    assert {node for _, node in copies(image) - was} == set(range(before + 1, before + added + 1))


@settings(max_examples=amount(50), deadline=None)
@given(sites.filter(lambda where: len(where) > 1), st.integers(1, 40), st.integers(1, 3), st.data())
def test_a_second_plan_has_no_further_step(
    where: list[Site], partitions: int, factor: int, data: st.DataObject
) -> None:
    before = data.draw(st.integers(1, len(where) - 1))
    image = cluster(where[:before])
    create(image, "t", partitions, min(factor, before))
    admit(image, where)
    carry_out(image, plan_rebalance(image, {}))
    assert plan_rebalance(image, {}) == []


def test_a_broker_that_leaves_is_emptied_and_others_keep_their_replicas() -> None:
    image = cluster([("", str(n)) for n in range(4)])
    create(image, "t", 40, 2)
    before = copies(image)

    carry_out(image, plan_rebalance(image, {}, leaving=[4]))

    assert 4 not in held(image)
    assert {node for _, node in before - copies(image)} == {4}
    assert max(held(image).values()) - min(held(image).values()) <= 4
    image.apply(UnregisterBrokerRecord(broker_id=4), 9999)
    assert plan_rebalance(image, {}) == []


def test_replicas_of_an_unregistered_broker_move_and_those_of_a_fenced_broker_stay() -> None:
    image = cluster([("", str(n)) for n in range(3)])
    create(image, "t", 6, 2)
    down = RegisterBrokerRecord(broker_id=3, fenced=True)
    image.apply(down, 900)
    assert not any(3 not in m.replicas and 3 in partition_of(image, m) for m in plan_rebalance(image, {}))

    image.apply(UnregisterBrokerRecord(broker_id=3), 901)
    carry_out(image, plan_rebalance(image, {}))
    assert held(image) == {1: 6, 2: 6}


def test_replicas_without_a_target_broker_are_not_planned() -> None:
    image = cluster([("", str(n)) for n in range(3)])
    create(image, "everywhere", 6, 3)
    create(image, "t", 1, 1)
    image.apply(UnregisterBrokerRecord(broker_id=1), 901)
    assert all(move.partition.topic == "t" for move in plan_rebalance(image, {}))


def partition_of(image: ClusterImage, move: Move) -> list[int]:
    return image.topics[move.partition.topic].partitions[move.partition.partition].replicas


def test_a_busy_partition_makes_room_for_itself() -> None:
    image = cluster([("", str(n)) for n in range(2)])
    create(image, "t", 8, 1)
    on_one = [p.index for p in image.partitions if p.replicas == [1]]
    loads = {TopicPartition("t", i): (90.0 if i == on_one[0] else 0.0) for i in range(8)}
    loads |= {TopicPartition("t", i): 10.0 for i in on_one[1:]}

    carry_out(image, plan_rebalance(image, loads))

    assert image.topics["t"].partitions[on_one[0]].replicas == [1]
    assert held(image)[1] < held(image)[2]


def test_a_cluster_within_the_tolerance_is_left_alone() -> None:
    image = cluster([("", str(n)) for n in range(3)])
    create(image, "t", 31, 1)
    assert plan_rebalance(image, {}) == []


def test_partitions_that_are_being_reassigned_are_not_touched() -> None:
    image = cluster([("", "1")])
    create(image, "t", 4, 1)
    image.apply(RegisterBrokerRecord(broker_id=2, fenced=False), 99)
    topic = image.topics["t"]
    for index in range(3):
        image.apply(
            PartitionChangeRecord(
                topic_id=topic.id,
                partition_id=index,
                replicas=[1, 2],
                adding_replicas=[2],
                removing_replicas=[1],
            ),
            100,
        )
    assert {move.partition.partition for move in plan_rebalance(image, {})} <= {3}


def test_nothing_can_be_planned_without_brokers() -> None:
    image = cluster([("", "1")])
    create(image, "t", 4, 1)
    assert plan_rebalance(image, {}, leaving=[1]) == []


@settings(max_examples=amount(50), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from("12")), min_size=2, max_size=6),
    st.integers(1, 20),
    st.lists(st.floats(0, 100), min_size=20, max_size=20),
    st.integers(1, 3),
)
def test_no_plan_puts_replicas_closer_together_or_changes_their_number(
    where: list[tuple[str, str]], partitions: int, loads: list[float], factor: int
) -> None:
    factor = min(factor, len(where) - 1)
    image = cluster([(zone, zone + host) for zone, host in where[:-1]])
    create(image, "t", partitions, factor)
    admit(image, [(zone, zone + host) for zone, host in where])
    measured = {TopicPartition("t", i): load for i, load in enumerate(loads)}

    def hosts(nodes: list[int]) -> int:
        return len({image.brokers[node].host for node in nodes})

    for move in plan_rebalance(image, measured):
        before = partition_of(image, move)
        assert len(set(move.replicas)) == len(move.replicas) == factor
        assert hosts(move.replicas) >= hosts(before)


def machines_of_two(count: int) -> ClusterImage:
    """Brokers 1 and 2 on the first machine, 3 and 4 on the second, and so on."""
    image = cluster([("", "host")] * (2 * count))
    for node, broker in image.brokers.items():
        broker.machine = f"machine-{(node + 1) // 2}"
    return image


def assign(image: ClusterImage, *assigned: list[int]) -> None:
    """Make a topic with these replicas, as a user may."""
    wanted = NewTopic("t", -1, -1, assignments=dict(enumerate(assigned)))
    for record in at_once(create_topic(image, wanted, Defaults(1, 1), lambda: TopicId(bytes(16)))):
        image.apply(record, image.offset + 1)


def sharing(image: ClusterImage) -> list[list[int]]:
    """The replicas of partitions that have two on one machine."""
    found = [p.replicas for p in image.partitions]
    return [nodes for nodes in found if len({image.brokers[node].machine for node in nodes}) < len(nodes)]


def test_replicas_that_a_user_has_put_on_one_machine_are_moved_apart() -> None:
    image = machines_of_two(3)
    assign(image, [1, 2], [3, 4], [1, 3], [5, 6])
    assert len(sharing(image)) == 3
    moves = plan_rebalance(image, {}, tolerance=100.0)
    carry_out(image, moves)
    assert sharing(image) == []
    assert [move.replicas[0] for move in moves] == [1, 3, 5], "the preferred leaders stay"
    assert {move.partition.partition for move in moves} == {0, 1, 3}, "nothing else moves"
    assert plan_rebalance(image, {}, tolerance=100.0) == []


def test_replicas_stay_on_one_machine_where_no_other_has_room() -> None:
    image = machines_of_two(2)
    assign(image, [1, 2, 3])
    assert plan_rebalance(image, {}) == []
    assert plan_rebalance(machines_of_two(2), {}) == []
    alone = machines_of_two(3)
    assign(alone, [1, 2])
    assert plan_rebalance(alone, {}, excluded=[3, 4, 5, 6]) == []


def test_no_move_takes_a_replica_to_the_machine_of_another() -> None:
    """Not even one that is on a machine with another already."""
    image = machines_of_two(2)
    assign(image, *[[1, 2, 3]] * 9)
    for _, replicas in plan_rebalance(image, {}, tolerance=0.0):
        assert not {3, 4} <= set(replicas), "they are on one machine"


def test_a_lost_replica_is_not_rebuilt_on_the_machine_of_another() -> None:
    image = cluster([("", "host")] * 5)
    for node, broker in image.brokers.items():
        broker.machine = "abc"[node % 3] if node < 5 else None
    create(image, "t", 6, 3)
    lost = {node for node, broker in image.brokers.items() if broker.machine == image.brokers[1].machine}
    for _, replicas in plan_evacuation(image, list(image.partitions), lost):
        machines = [image.brokers[node].machine for node in replicas if node not in lost]
        assert len(machines) == len(set(machines))
