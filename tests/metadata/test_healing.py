"""Self-healing: replicas of brokers that are gone are rebuilt, and a new broker receives its share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from random import Random
from typing import Any

import pytest

from penstock.metadata.brokers import unregister_broker
from penstock.metadata.healing import (
    Cancel,
    Decision,
    Replica,
    Settings,
    Situation,
    decide,
    obstacles,
    plan_share,
    records_of,
)
from penstock.metadata.image import Origin, PartitionImage
from penstock.metadata.reassignment import list_reassignments
from penstock.metadata.rebalance import Planned, rebalance_steps
from penstock.model.ids import TopicPartition
from penstock.model.steps import Steps, at_once
from penstock.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.metadata.stage import Stage

DELAY_MS = 1000.0
ON = Settings(rebuild=True, share=True, delay_ms=DELAY_MS, partitions_max=10)
LONG = {3: DELAY_MS}


def heal(
    stage: Stage,
    gone: Mapping[int, float] | None = None,
    settings: Settings = ON,
    *,
    quiet_ms: float = 0.0,
    full: Collection[int] = (),
    last: Decision | None = None,
    failed: Mapping[Replica, float] | None = None,
) -> Decision:
    """Decide once and carry it out; nothing is quiet unless a test says so."""

    def situation(last: Decision) -> Situation:
        return Situation(gone or {}, quiet_ms, full, last.sharing, last.planned, last.settled, failed or {})

    last = last or Decision([], [])
    decision = decide(stage.image, settings, situation(last))
    if decision.needs_plan:
        last = at_once(plan_share(stage.image, settings, situation(decision)))
        decision = decide(stage.image, settings, situation(last))
    records, done = records_of(stage.image, stage.policy, decision)
    stage.commit(records)
    return done


def catch_up(stage: Stage) -> None:
    """Let every replica on a broker that is up join the ISR."""
    for partition in list(stage.image.partitions):
        up = [node for node in partition.replicas if stage.image.brokers[node].active]
        if partition.leader >= 0 and set(partition.isr) != set(up):
            stage.alter(partition, up)


def reasons(stage: Stage) -> list[str]:
    response = at_once(list_reassignments(stage.image, ListPartitionReassignmentsRequest(topics=None)))
    return [partition.reason for topic in response.topics for partition in topic.partitions]


def held(stage: Stage) -> Counter[int]:
    return Counter(node for partition in stage.image.partitions for node in partition.replicas)


# -- brokers that are gone


def test_the_replicas_of_a_gone_broker_are_rebuilt_on_others() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(3)

    heal(stage, LONG)

    assert (partition.adding, partition.removing, partition.origin) == ([4], [3], Origin.REBUILD)
    assert reasons(stage) == ["self-healing: gone: 3"]
    catch_up(stage)
    assert (partition.replicas, partition.reassigning) == ([1, 2, 4], False)
    assert partition.origin == Origin.REQUEST


def test_not_before_the_delay() -> None:
    stage = Stage(4)
    stage.topic("t", [1, 2, 3])
    stage.fence(3)
    assert heal(stage, {3: DELAY_MS - 1}).start == []


def test_not_where_it_is_switched_off() -> None:
    stage = Stage(4)
    stage.topic("t", [1, 2, 3])
    stage.fence(3)
    assert heal(stage, LONG, ON._replace(rebuild=False)).start == []


def test_not_with_fewer_brokers_up_than_replicas() -> None:
    """Broker 4 would be free, but 2 is down as well, though not for long."""
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3], min_isr=1)
    stage.fence(2, 3)
    assert heal(stage, {2: 10, 3: DELAY_MS}).start == []
    assert obstacles(stage.image, ON, Situation({2: 10, 3: DELAY_MS}, 0)) == [
        "1 partition(s) with lost replicas have more replicas than brokers are up (2)"
    ]
    stage.beat(2)
    heal(stage, LONG)
    assert partition.removing == [3]


def failed(*replicas: tuple[int, PartitionImage], ms: float = DELAY_MS) -> dict[Replica, float]:
    return {(node, partition.topic_id, partition.index): ms for node, partition in replicas}


def test_the_replicas_in_a_failed_directory_are_rebuilt_on_others() -> None:
    """Broker 3 is up; its other replica is in a healthy directory."""
    stage = Stage(4)
    lost = stage.topic("t", [1, 2, 3], [2, 1, 3])
    kept = stage.partition("t", 1)
    stage.alter(lost, [1, 2])

    heal(stage, failed=failed((3, lost), ms=DELAY_MS - 1), full=[3])
    assert not lost.reassigning
    heal(stage, failed=failed((3, lost)), full=[3])

    assert (lost.adding, lost.removing, lost.origin) == ([4], [3], Origin.REBUILD)
    assert not kept.reassigning
    assert reasons(stage) == ["self-healing: data directory failed: 3"]
    # The broker is up, and the rebuild goes on.
    assert heal(stage, failed=failed((3, lost)), full=[3]) == Decision([], [])
    catch_up(stage)
    assert (lost.replicas, kept.replicas) == ([1, 2, 4], [2, 1, 3])


def test_a_rebuild_is_cancelled_when_the_directory_is_back() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3])
    stage.alter(partition, [1, 2])
    heal(stage, failed=failed((3, partition)), full=[3])
    assert partition.reassigning
    assert heal(stage).cancel == [Cancel(TopicPartition("t", 0), "broker 3 is back")]
    assert partition.replicas == [1, 2, 3]


def test_a_gone_broker_and_a_failed_directory_are_replaced_at_once() -> None:
    stage = Stage(5)
    partition = stage.topic("t", [1, 2, 3], min_isr=1)
    other = stage.topic("u", [1, 2, 3], min_isr=1)
    stage.fence(2)
    stage.alter(partition, [1])
    heal(stage, {2: DELAY_MS}, failed=failed((3, partition)), full=[3])
    assert (partition.adding, partition.removing) == ([4, 5], [2, 3])
    assert reasons(stage)[0] == "self-healing: gone: 2; data directory failed: 3"
    assert other.removing == [2]


def test_nothing_is_copied_from_a_leader_in_a_failed_directory() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [3, 1, 2])
    situation = Situation({}, 0, failed=failed((3, partition)))
    assert decide(stage.image, ON, situation).start == []
    assert obstacles(stage.image, ON, situation) == [
        "1 partition(s) with lost replicas have a leader whose data directory has failed"
    ]


def test_two_gone_brokers_are_replaced_at_once() -> None:
    stage = Stage(5)
    partition = stage.topic("t", [1, 2, 3], min_isr=1)
    stage.fence(2, 3)
    heal(stage, {2: DELAY_MS, 3: DELAY_MS})
    assert (partition.adding, partition.removing) == ([4, 5], [2, 3])


def test_a_rebuild_is_cancelled_when_the_broker_is_back() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(3)
    heal(stage, LONG)
    stage.beat(3)

    assert heal(stage).cancel == [Cancel(TopicPartition("t", 0), "broker 3 is back")]

    assert (partition.replicas, partition.reassigning) == ([1, 2, 3], False)
    assert heal(stage) == Decision([], [])


def test_a_rebuild_is_cancelled_when_it_is_switched_off() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(3)
    heal(stage, LONG)
    heal(stage, LONG, ON._replace(rebuild=False))
    assert (partition.replicas, partition.reassigning) == ([1, 2, 3], False)


def test_a_rebuild_goes_on_while_the_isr_needs_the_new_replica() -> None:
    """Of two brokers that were replaced one is back; of the two new replicas one is in sync."""
    stage = Stage(5)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(2, 3)
    heal(stage, {2: DELAY_MS, 3: DELAY_MS})
    stage.alter(partition, [1, 4])
    stage.beat(3)
    assert heal(stage, {2: DELAY_MS}).cancel == []

    stage.alter(partition, [1, 4, 3])

    assert len(heal(stage, {2: DELAY_MS}).cancel) == 1
    assert (partition.replicas, partition.isr) == ([1, 2, 3], [1, 3])
    heal(stage, {2: DELAY_MS})
    assert partition.removing == [2]


@pytest.mark.parametrize("loss", ["gone", "full", "excluded"])
def test_another_broker_is_chosen_where_the_chosen_one_cannot_take_it(loss: str) -> None:
    stage = Stage(5)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(3)
    heal(stage, LONG, full=[5])
    assert partition.adding == [4]
    gone, settings = dict(LONG), ON
    full: list[int] = []
    if loss == "gone":
        stage.fence(4)
        gone[4] = DELAY_MS
    elif loss == "full":
        full = [4]
    else:
        settings = ON._replace(excluded=frozenset({4}))
    assert len(heal(stage, gone, settings, full=full).cancel) == 1
    heal(stage, gone, settings, full=full)
    assert partition.adding == [5]


def test_nothing_is_given_to_brokers_without_room() -> None:
    stage = Stage(4)
    stage.topic("t", [1, 2, 3])
    stage.fence(3)
    assert heal(stage, LONG, full=[4]).start == []
    assert obstacles(stage.image, ON, Situation(LONG, 0, full=[4])) == [
        "1 partition(s) with lost replicas have no broker left that takes a replica"
    ]


def test_replicas_wait_for_a_machine_without_another_one() -> None:
    stage = Stage(6)
    for node, broker in stage.image.brokers.items():
        broker.machine = f"machine-{(node + 1) // 2}"
    partition = stage.topic("t", [1, 3, 5])
    stage.fence(5, 6)
    gone = {5: DELAY_MS, 6: DELAY_MS}
    assert heal(stage, gone).start == []
    assert obstacles(stage.image, ON, Situation(gone, 0)) == [
        "1 partition(s) with lost replicas have no machine left that takes a replica"
    ]
    stage.beat(6)
    assert obstacles(stage.image, ON, Situation({5: DELAY_MS}, 0)) == []
    heal(stage, {5: DELAY_MS})
    assert partition.adding == [6]


def test_a_partition_without_a_leader_waits() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [3], min_isr=1)
    stage.fence(3)
    assert partition.leader == -1
    assert heal(stage, LONG).start == []
    assert obstacles(stage.image, ON, Situation(LONG, 0)) == [
        "1 partition(s) with lost replicas have no leader to copy from"
    ]


def test_a_partition_below_the_minimum_isr_is_rebuilt() -> None:
    """The gone broker is eligible to lead, and stops being so when the ISR has the minimum again."""
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(2, 3)
    assert (partition.isr, partition.elr) == ([1], [3])
    stage.beat(2)
    heal(stage, LONG)
    assert partition.adding == [4]
    stage.alter(partition, [1, 4])
    assert (partition.replicas, partition.isr, partition.elr) == ([1, 2, 4], [1, 4], [])


def test_a_requested_reassignment_is_left_alone() -> None:
    stage = Stage(5)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(3)
    stage.reassign({0: [1, 2, 5]})
    assert heal(stage, LONG) == Decision([], [])
    stage.beat(3)
    assert heal(stage) == Decision([], [])
    assert partition.adding == [5]


def test_a_request_takes_over_a_rebuild() -> None:
    """Also a request for the very same replicas: it holds whether the broker is back or not."""
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(3)
    heal(stage, LONG)
    assert partition.origin == Origin.REBUILD
    stage.reassign({0: [1, 2, 4]})
    assert partition.origin == Origin.REQUEST
    stage.beat(3)
    assert heal(stage).cancel == []


def test_an_unregistered_broker_is_replaced_too() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3])
    stage.commit(at_once(unregister_broker(stage.image, stage.policy, 3)))
    heal(stage, LONG)
    assert (partition.adding, partition.removing) == ([4], [3])


def test_racks_are_kept_apart() -> None:
    stage = Stage()
    for node, rack in enumerate("AABBC", start=1):
        stage.register(node, rack=rack)
        stage.beat(node)
    partition = stage.topic("t", [1, 3], min_isr=1)
    stage.fence(3)
    heal(stage, LONG)
    assert partition.adding in ([4], [5])


def test_the_most_endangered_come_first_and_few_at_once() -> None:
    stage = Stage(5)
    stage.topic("t", *[[1, 2, 3]] * 8, min_isr=1)
    endangered = stage.partition("t", 6)
    stage.fence(3)
    stage.alter(endangered, [1])
    settings = ON._replace(partitions_max=3)

    first = heal(stage, LONG, settings)

    assert [start.move.partition.partition for start in first.start] == [6, 0, 1]
    assert heal(stage, LONG, settings).start == []
    stage.alter(endangered, [1, *endangered.adding])
    assert len(heal(stage, LONG, settings).start) == 1


# -- brokers with few replicas


def balanced(stage: Stage, settings: Settings = ON, quiet_ms: float = DELAY_MS) -> int:
    """Heal and catch up until nothing happens any more; how many replicas have moved."""
    moved, decision = 0, None
    for _ in range(200):
        decision = heal(stage, None, settings, quiet_ms=quiet_ms, last=decision)
        assert not decision.cancel
        if not decision.start:
            return moved
        moved += sum(len(p.adding) for p in stage.image.reassigning.values())
        assert len(stage.image.reassigning) <= settings.partitions_max
        catch_up(stage)
    raise AssertionError("it does not end")


@pytest.mark.parametrize("partitions_max", [1, 3, 10, 1000])
def test_a_new_broker_receives_its_share_and_little_else_moves(partitions_max: int) -> None:
    stage = Stage(3)
    stage.topic("t", *[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 10)
    stage.register(4)
    stage.beat(4)
    assert heal(stage, quiet_ms=DELAY_MS - 1).start == []

    moved = balanced(stage, ON._replace(partitions_max=partitions_max))

    assert 20 <= moved <= 24
    assert all(20 <= count <= 25 for count in held(stage).values())
    leads = Counter(partition.replicas[0] for partition in stage.image.partitions)
    assert all(6 <= count <= 9 for count in leads.values())


def test_a_plan_is_made_once_and_given_up_when_a_broker_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan takes time for each partition of the cluster."""
    stage, plans = Stage(3), []
    stage.topic("t", *[[1, 2, 3]] * 20)
    stage.register(4)
    stage.beat(4)

    def counted(*arguments: Any, **options: Any) -> Steps[list[Planned]]:
        plans.append(1)
        return rebalance_steps(*arguments, **options)

    monkeypatch.setattr("penstock.metadata.healing.rebalance_steps", counted)
    settings = ON._replace(partitions_max=2)
    first = heal(stage, None, settings, quiet_ms=DELAY_MS)
    catch_up(stage)
    second = heal(stage, None, settings, quiet_ms=DELAY_MS, last=first)
    assert (len(first.start), len(second.start), len(plans)) == (2, 2, 1)
    stage.fence(2)
    assert heal(stage, None, settings, last=second).planned == ()
    stage.beat(2)
    balanced(stage)
    # One more for the rest, one that finds the leaders uneven at the end, one that finds nothing.
    assert len(plans) <= 4


def test_a_plan_that_moves_nothing_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Racks are in the way: what broker 4 could take from another has a replica in its rack already."""
    stage = Stage()
    for node, rack in enumerate("ABAB", start=1):
        stage.register(node, rack=rack)
        stage.beat(node)
    stage.topic("t", *[[1, 2]] * 4, *[[3, 2]] * 4, min_isr=1)
    decision = heal(stage, quiet_ms=DELAY_MS, full=[2])
    assert decision.start == []
    assert decision.settled == {1: 4, 3: 4, 4: 0}
    monkeypatch.setattr("penstock.metadata.healing.rebalance_steps", None)
    assert heal(stage, quiet_ms=DELAY_MS, full=[2], last=decision).settled == decision.settled


def test_its_reason_is_listed() -> None:
    stage = Stage(3)
    stage.topic("t", *[[1, 2, 3]] * 3)
    stage.register(4)
    stage.beat(4)
    heal(stage, None, ON._replace(partitions_max=1), quiet_ms=DELAY_MS)
    assert reasons(stage) == ["few replicas on: 4"]
    heal(stage, None, ON._replace(share=False), quiet_ms=DELAY_MS)
    assert reasons(stage) == []


@pytest.mark.parametrize("few", [(9, 10, 10), (8, 10, 9), (1, 2, 1), (0, 1, 1), (0, 0, 1)], ids=str)
def test_small_differences_move_nothing(few: tuple[int, ...]) -> None:
    stage = Stage(3)
    stage.topic("t", *[[node] for node, count in enumerate(few, start=1) for _ in range(count)], min_isr=1)
    assert balanced(stage) == 0


@pytest.mark.parametrize("trouble", ["fenced", "reassigned", "leaderless", "excluded", "full", "off"])
def test_nothing_is_shared_while(trouble: str) -> None:
    stage = Stage(3)
    stage.topic("t", *[[1, 2, 3]] * 6, min_isr=1)
    stage.register(4)
    stage.beat(4)
    settings = ON
    full: list[int] = []
    if trouble == "fenced":
        stage.fence(3)
    elif trouble == "reassigned":
        stage.reassign({0: [1, 2, 4]})
    elif trouble == "leaderless":
        stage.topic("u", [4], min_isr=1)
        stage.fence(4)
    elif trouble == "excluded":
        settings = ON._replace(excluded=frozenset({4}))
    elif trouble == "full":
        full = [4]
    else:
        settings = ON._replace(share=False)
    assert heal(stage, None, settings, quiet_ms=DELAY_MS, full=full).start == []


def test_a_returned_broker_receives_its_share_of_replicas() -> None:
    stage = Stage(4)
    stage.topic("t", *[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 4)
    stage.fence(3)
    while heal(stage, LONG).start:
        catch_up(stage)
    assert held(stage)[3] == 0
    stage.beat(3)
    balanced(stage)
    assert all(8 <= count <= 10 for count in held(stage).values())


# -- everything at once


def in_order(partition: PartitionImage, replicas: int) -> None:
    assert len(partition.replicas) - len(partition.adding) >= replicas
    assert set(partition.isr) <= set(partition.replicas)


@pytest.mark.parametrize("seed", range(12))
def test_the_number_of_replicas_is_restored_after_random_failures(seed: int) -> None:
    """Brokers come and go at random; copies in sync are never given up, and in the end all are there."""
    rng, stage = Random(seed), Stage(6)
    stage.topic("t", *[rng.sample(range(1, 7), 3) for _ in range(12)])
    gone: dict[int, float] = {}
    settings, decision = ON._replace(partitions_max=4), Decision([], [])
    for _ in range(60):
        node = rng.randint(1, 6)
        if node in gone:
            stage.beat(node)
            del gone[node]
        elif len(gone) < 3:
            stage.fence(node)
            gone[node] = 0.0
        for _ in range(rng.randint(0, 3)):
            in_sync = {p.key: set(p.isr) for p in stage.image.partitions}
            up = 6 - len(gone)
            quiet_ms = rng.choice((0.0, DELAY_MS))
            decision = heal(stage, gone, settings, quiet_ms=quiet_ms, last=decision)
            assert not decision.start or up >= 3
            for partition in stage.image.partitions:
                in_order(partition, 3)
                # A decision costs the ISR nothing that it needs.
                assert len(partition.isr) >= min(2, len(in_sync[partition.key]))
            gone = {node: ms + rng.choice((0.0, DELAY_MS)) for node, ms in gone.items()}
            if rng.random() < 0.7:
                catch_up(stage)
    for node in gone:
        stage.beat(node)
    for _ in range(40):
        catch_up(stage)
        decision = heal(stage, None, settings, quiet_ms=DELAY_MS, last=decision)
    assert all(len(p.replicas) == len(set(p.isr)) == 3 for p in stage.image.partitions)
    assert not stage.image.reassigning
