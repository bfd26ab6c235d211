"""Balancing by measured load: small steps that help, come to an end, and keep replicas apart."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.metadata.balance import LoadMeter, Measured, begin_step, next_step
from penstock.metadata.image import ClusterImage
from penstock.metadata.placement import crowding
from penstock.metadata.rebalance import Move
from penstock.model.ids import TopicPartition
from penstock.wire.metadata_records import RegisterBrokerRecord
from tests.amounts import amount
from tests.metadata.moves import carry_out, copies
from tests.metadata.sites import cluster, create
from tests.metadata.stage import Stage

KB = 1024.0


def loads_of(*kilobytes: float, topic: str = "t") -> dict[TopicPartition, float]:
    return {TopicPartition(topic, index): KB * load for index, load in enumerate(kilobytes)}


def led(image: ClusterImage, loads: dict[TopicPartition, float]) -> Counter[int]:
    """Kilobytes per second that each broker leads."""
    total: Counter[int] = Counter()
    for name, load in loads.items():
        total[image.topics[name.topic].partitions[name.partition].leader] += int(load / KB)
    return total


def settle(
    image: ClusterImage, loads: dict[TopicPartition, float], *, replicas: bool = True, tolerance: float = 0.2
) -> list[Move]:
    """The steps until there are no more."""
    steps: list[Move] = []
    while (step := next_step(image, loads, tolerance=tolerance, replicas=replicas)) is not None:
        carry_out(image, [step])
        steps.append(step)
        assert len(steps) < 500, "it never settles"
    return steps


def staged(*replicas: list[int], brokers: int = 3) -> ClusterImage:
    stage = Stage(brokers)
    stage.topic("t", *replicas)
    return stage.image


def test_leaders_move_first_and_no_data_does() -> None:
    image = staged(*[[1, 2, 3]] * 6)
    before, loads = copies(image), loads_of(*[10] * 6)
    assert len(settle(image, loads)) == 4
    assert copies(image) == before
    assert led(image, loads) == {1: 20, 2: 20, 3: 20}


def test_replicas_move_where_leaders_cannot_and_only_if_that_is_wanted() -> None:
    loads = loads_of(*[10] * 6)
    only_leaders = staged(*[[1]] * 6)
    assert settle(only_leaders, loads, replicas=False) == []
    image = staged(*[[1]] * 6)
    assert len(settle(image, loads)) == 4
    assert led(image, loads) == {1: 20, 2: 20, 3: 20}


def test_the_busiest_partition_moves_and_idle_ones_stay() -> None:
    image = staged([1, 2], [1, 2], [1, 3], [1, 3])
    (step, *_) = settle(image, loads_of(0, 40, 0, 30))
    assert step.partition == ("t", 1)
    assert step.replicas == [2, 1]


def test_one_partition_that_is_all_the_load_has_nowhere_better_to_be() -> None:
    assert settle(staged([1, 2, 3], [2, 3, 1]), loads_of(100, 0)) == []


def test_a_replica_that_could_not_catch_up_while_it_is_copied_stays() -> None:
    image, loads = staged(*[[1]] * 6), loads_of(*[10] * 6)
    assert next_step(image, loads, tolerance=0.2, replicas=True, copied_per_s=19 * KB) is None
    assert next_step(image, loads, tolerance=0.2, replicas=True, copied_per_s=20 * KB) is not None


def test_small_differences_and_idle_clusters_are_left_alone() -> None:
    assert settle(staged([1, 2], [2, 1], brokers=2), loads_of(11, 9)) == []
    assert settle(staged([1, 2], [1, 2], brokers=2), loads_of(0.3, 0.3)) == []
    assert settle(staged([1, 2], [1, 2], brokers=2), loads_of(3, 3)) != []


def test_a_broker_within_the_tolerance_gives_nothing_away() -> None:
    """Though the one with least would gain."""
    image = staged([1, 3], [1, 3], [2, 3], [3, 1])
    loads = loads_of(10, 1.5, 11.5, 7)
    assert settle(image, loads, replicas=False) == []
    assert settle(image, loads, replicas=False, tolerance=0.1) != []


def test_no_replica_leaves_its_zone_empty() -> None:
    """Broker 3 has least, but is in the zone of broker 2: only that may give to it."""
    image = cluster([("A", "1"), ("B", "2"), ("B", "3")])
    create(image, "t", 6, 2)
    carry_out(image, [Move(TopicPartition("t", index), [1, 2]) for index in range(6)])
    settle(image, loads_of(*[10] * 6))
    assert Counter(node for _, node in copies(image)) == {1: 6, 2: 4, 3: 2}


def test_a_moved_partition_does_not_move_back_after_small_changes_of_load() -> None:
    image = staged(*[[1, 2, 3]] * 6)
    settle(image, loads_of(*[10] * 6))
    assert settle(image, loads_of(11, 9, 10, 9, 11, 10)) == []


@pytest.mark.parametrize("trouble", ["down", "moving"])
def test_nothing_moves_while_a_broker_is_down_or_something_moves(trouble: str) -> None:
    stage = Stage(3)
    stage.topic("t", [1, 2], [1, 2])
    stage.topic("other", [2, 3])
    if trouble == "down":
        stage.fence(3)
    else:
        stage.reassign({0: [2, 1]}, "other")
    assert next_step(stage.image, loads_of(9, 9), tolerance=0.2, replicas=True) is None


def test_a_follower_that_lags_does_not_lead_and_its_partition_does_not_move() -> None:
    stage = Stage(3)
    partition = stage.topic("t", [1, 2], min_isr=1)
    stage.topic("u", [1, 2], min_isr=1)
    stage.alter(partition, [1])
    step = next_step(stage.image, loads_of(50) | loads_of(5, topic="u"), tolerance=0.2, replicas=True)
    assert step is not None
    assert step.partition.topic == "u"


def test_no_step_takes_a_replica_to_the_machine_of_another() -> None:
    """Not even one that a user has put on a machine with another already."""
    image = staged(*[[1, 2, 3]] * 9, brokers=4)
    for node, broker in image.brokers.items():
        broker.machine = f"machine-{(node + 1) // 2}"
    for step in settle(image, loads_of(*[10] * 9)):
        assert not {3, 4} <= set(step.replicas)


def test_a_leader_changes_at_once_and_a_replica_is_reassigned() -> None:
    stage = Stage(3)
    partition = stage.topic("t", [1, 2])
    stage.commit(begin_step(stage.image, stage.policy, Move(TopicPartition("t", 0), [2, 1])))
    assert (partition.leader, partition.replicas, partition.reassigning) == (2, [2, 1], False)
    stage.commit(begin_step(stage.image, stage.policy, Move(TopicPartition("t", 0), [2, 3])))
    assert (partition.leader, partition.adding, partition.removing) == (2, [3], [1])


@settings(max_examples=amount(60), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("AB"), st.sampled_from("12")), min_size=2, max_size=5),
    st.lists(st.integers(0, 200), min_size=1, max_size=12),
    st.integers(1, 3),
    st.sampled_from([0.1, 0.2, 0.5]),
)
def test_steps_end_help_and_never_put_replicas_closer_together(
    where: list[tuple[str, str]], kilobytes: list[int], factor: int, tolerance: float
) -> None:
    image = cluster([(zone, zone + host) for zone, host in where])
    create(image, "t", len(kilobytes), min(factor, len(where)))
    image.apply(RegisterBrokerRecord(broker_id=len(where) + 1, fenced=False), 999)
    loads = loads_of(*kilobytes)

    def closeness() -> list[list[tuple[int, int]]]:
        return [
            sorted(
                crowding(image.brokers[node], [image.brokers[n] for n in p.replicas if n != node])
                for node in p.replicas
            )
            for p in image.partitions
        ]

    def unevenness() -> int:
        held = Counter[int]()
        for (_, index), node in copies(image):
            held[node] += kilobytes[index]
        return sum(x * x for x in led(image, loads).values()) + sum(x * x for x in held.values())

    while (step := next_step(image, loads, tolerance=tolerance, replicas=True)) is not None:
        before = closeness(), unevenness(), copies(image)
        carry_out(image, [step])
        assert all(
            sum(map(sum, now)) <= sum(map(sum, old)) for now, old in zip(closeness(), before[0], strict=True)
        )
        assert unevenness() < before[1]
        assert len(copies(image) - before[2]) <= 1


# -- measuring


def meter_of(*sizes: int, leaders: tuple[int, ...] = (), every_s: float = 10.0) -> LoadMeter:
    """A meter that has seen these sizes of one partition, one after the other."""
    meter = LoadMeter()
    for nth, size in enumerate(sizes):
        leader = leaders[nth] if leaders else 1
        meter.measured({TopicPartition("t", 0): Measured(leader, size)}, 1000 * every_s * nth)
    return meter


def test_a_load_is_the_growth_of_a_log() -> None:
    meter = meter_of(5000, 6000, 7000, 8000)
    assert meter.loads == {TopicPartition("t", 0): 100.0}
    assert meter.is_ready
    assert not meter_of(5000, 6000, 7000).is_ready


def test_a_burst_is_smoothed() -> None:
    assert meter_of(0, 1000, 4000).loads == {TopicPartition("t", 0): 200.0}


@pytest.mark.parametrize(("sizes", "leaders"), [((0, 1000, 200), (1, 1, 1)), ((0, 1000, 9000), (1, 1, 2))])
def test_retention_and_changes_of_leader_do_not_count_as_load(
    sizes: tuple[int, ...], leaders: tuple[int, ...]
) -> None:
    assert meter_of(*sizes, leaders=leaders).loads == {TopicPartition("t", 0): 100.0}


def test_a_partition_that_is_gone_is_forgotten() -> None:
    meter = meter_of(0, 1000)
    meter.measured({TopicPartition("u", 0): Measured(1, 5)}, 20_000)
    assert meter.loads == {TopicPartition("u", 0): 0.0}


def test_numbers_stay_even_where_they_are_evened_out_by_themselves() -> None:
    """Else what load moves away would be given back, for the sake of numbers, again and again."""
    loads = loads_of(40, 40, 40, 40, *[0.1] * 8)
    placed = [[1]] * 4 + [[2]] * 4 + [[3]] * 4
    image = staged(*placed)
    assert next_step(image, loads, tolerance=0.2, replicas=True) is not None
    assert next_step(image, loads, tolerance=0.2, replicas=True, even_numbers=True) is None
    assert next_step(image, loads, tolerance=0.3, replicas=True, even_numbers=True) is not None
