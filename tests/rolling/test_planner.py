"""The steps of a roll: order, conditions, reasons."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.rolling.planner import Done, Refuse, Restart, Wait, next_broker, next_step, obstacles, outages
from penstock.rolling.state import ClusterState, Partition
from tests.amounts import amount
from tests.rolling.states import partition, whole

THREE = {1: "", 2: "", 3: ""}


def order(state: ClusterState) -> list[int]:
    """The brokers in the order of a roll during which nothing else changes."""
    left, found = set(state.brokers), []
    while left:
        found.append(next_broker(state, left))
        left.remove(found[-1])
    return found


def test_a_whole_cluster_is_rolled_one_broker_at_a_time_and_the_controller_last() -> None:
    state = whole(THREE, controller=2, partitions=[partition("t", [1, 2, 3])])
    assert next_step(state, [1, 2, 3]) == Restart(1)
    assert next_step(state, [2, 3]) == Restart(3)
    assert next_step(state, [2]) == Restart(2)
    assert next_step(state, []) == Done()


def test_zones_follow_each_other_and_voters_come_last_in_their_zone() -> None:
    racks = {1: "c", 2: "b", 3: "a", 4: "a", 5: "b", 6: "c"}
    assert order(whole(racks, voters=(1, 2, 3), controller=3)) == [5, 2, 6, 1, 4, 3]
    assert order(whole(racks, voters=(1, 2, 3), controller=1)) == [4, 3, 5, 2, 6, 1]


def test_a_zone_that_was_begun_is_finished_first() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
    state = whole(racks, controller=4)
    assert next_broker(state, {1, 2, 4, 5, 6}) == 6, "broker 3 of the zone c is done"
    # The controller has moved into the zone that was begun.
    assert next_broker(state._replace(controller=6), {1, 2, 4, 5, 6}) == 4


def test_an_election_in_the_middle_does_not_restart_the_new_controller_early() -> None:
    state = whole(THREE, controller=3)
    assert next_broker(state, {1, 2, 3}) == 1
    assert next_broker(state._replace(controller=2), {2, 3}) == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: s._replace(controller=None), "the quorum has no leader"),
        (
            lambda s: s._replace(brokers={**s.brokers, 3: s.brokers[3]._replace(is_up=False)}),
            "broker 3 is not up",
        ),
        (
            lambda s: s._replace(voters=[*s.voters[:2], s.voters[2]._replace(is_current=False)]),
            "voter 3 does not follow the quorum",
        ),
        (
            lambda s: s._replace(partitions=[s.partitions[0]._replace(isr=[1, 3])]),
            "with replicas that are not in sync: t-0",
        ),
        (
            lambda s: s._replace(partitions=[s.partitions[0]._replace(leader=None)]),
            "without a leader: t-0",
        ),
    ],
)
def test_a_cluster_that_is_not_whole_is_awaited(change: object, reason: str) -> None:
    state = whole(THREE, partitions=[partition("t", [1, 2, 3])])
    assert callable(change)
    assert next_step(change(state), [2, 3]) == Wait([reason])
    assert next_step(change(state), []) == Wait([reason]), "the roll is not done before all is well"


def test_many_partitions_are_counted() -> None:
    lacking = [partition("t", [1, 2, 3], n)._replace(isr=[1]) for n in range(5)]
    assert obstacles(whole(THREE, partitions=lacking)) == [
        "with replicas that are not in sync: t-0, t-1, t-2 and 2 more partitions"
    ]


def test_a_broker_that_is_not_registered_is_awaited() -> None:
    assert next_step(whole(THREE), [4]) == Wait(["broker 4 is not registered"])


def test_a_restart_that_would_make_something_unavailable_is_refused() -> None:
    alone = whole(THREE, partitions=[partition("t", [2], min_isr=1)], controller=3)
    assert outages(alone, 1) == []
    assert next_step(alone, [2, 3]) == Refuse(2, ["it has the only replica of t-0"])
    assert next_step(alone, [2, 3], allow_outages=True) == Restart(2)
    strict = whole(THREE, partitions=[partition("t", [1, 2], min_isr=2)])
    reason = "fewer replicas than min.insync.replicas would be in sync of t-0"
    assert next_step(strict, [2]) == Refuse(2, [reason])


def test_the_quorum_keeps_a_majority() -> None:
    pair = whole({1: "", 2: ""}, voters=(1, 2))
    assert next_step(pair, [1, 2]) == Refuse(2, ["1 of 2 voters are no majority, so the quorum would stop"])
    assert next_step(whole({1: "", 2: "", 3: ""}, voters=(1,)), [1, 2, 3]) == Restart(2)
    assert isinstance(next_step(whole(THREE, voters=(1,)), [1]), Refuse)


def test_a_restart_that_was_begun_is_repeated_if_the_others_are_whole() -> None:
    """An attempt may have ended while the broker was stopped."""
    state = whole(THREE, partitions=[partition("t", [1, 2, 3])])
    down = state._replace(
        brokers={**state.brokers, 2: state.brokers[2]._replace(is_up=False)},
        voters=[v._replace(is_current=v.id != 2) for v in state.voters],
        partitions=[state.partitions[0]._replace(isr=[1, 3])],
    )
    assert next_step(down, [2, 3]) == Wait(
        [
            "broker 2 is not up",
            "voter 2 does not follow the quorum",
            "with replicas that are not in sync: t-0",
        ]
    )
    assert next_step(down, [2, 3], begun=2) == Restart(2)
    worse = down._replace(brokers={**down.brokers, 3: down.brokers[3]._replace(is_up=False)})
    assert next_step(worse, [2, 3], begun=2) == Wait(["broker 3 is not up"])


@st.composite
def clusters(draw: st.DrawFn) -> ClusterState:
    count = draw(st.integers(1, 7))
    racks = {id_: draw(st.sampled_from(("", "a", "b", "c"))) for id_ in range(1, count + 1)}
    voters = sorted(draw(st.sets(st.integers(1, count), min_size=1, max_size=5)))
    partitions: list[Partition] = []
    for index in range(draw(st.integers(0, 6))):
        replicas = draw(st.lists(st.integers(1, count), min_size=1, max_size=3, unique=True))
        isr = draw(st.lists(st.sampled_from(replicas), unique=True))
        leader = draw(st.sampled_from(isr)) if isr else None
        least = draw(st.integers(1, 3))
        partitions.append(partition("t", replicas, index, min_isr=least)._replace(isr=isr, leader=leader))
    state = whole(racks, voters=voters, controller=draw(st.sampled_from(voters)), partitions=partitions)
    ups = {id_: broker._replace(is_up=draw(st.integers(0, 9)) > 0) for id_, broker in state.brokers.items()}
    current = [voter._replace(is_current=draw(st.integers(0, 9)) > 0) for voter in state.voters]
    return state._replace(brokers=ups, voters=current)


@settings(max_examples=amount(500), deadline=None)
@given(clusters(), st.data())
def test_a_restart_makes_no_partition_and_no_quorum_unavailable(
    state: ClusterState, data: st.DataObject
) -> None:
    left = data.draw(st.sets(st.sampled_from(sorted(state.brokers))))
    step = next_step(state, left)
    if not isinstance(step, Restart):
        return
    assert step.broker in left
    assert all(broker.is_up for broker in state.brokers.values())
    for each in state.partitions:
        assert set(each.replicas) == set(each.isr)
        rest = set(each.isr) - {step.broker}
        assert step.broker not in each.replicas or len(rest) >= max(1, each.min_isr)
    standing = [voter for voter in state.voters if voter.is_current and voter.id != step.broker]
    assert 2 * len(standing) > len(state.voters) or step.broker not in {v.id for v in state.voters}
    assert step.broker != state.controller or left == {step.broker}


@settings(max_examples=amount(200), deadline=None)
@given(clusters())
def test_an_order_has_each_broker_once_and_zones_in_one_piece(state: ClusterState) -> None:
    found = order(state)
    assert sorted(found) == sorted(state.brokers)
    zones = [state.brokers[id_].rack for id_ in found if id_ != state.controller]
    assert sum(a != b for a, b in pairwise(zones)) == len(set(zones)) - bool(zones)
    assert found[-1] == state.controller
