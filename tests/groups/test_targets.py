"""Targets of large consumer groups: computed over many turns, written in one."""

from __future__ import annotations

from penstock.groups.assignors import SLICE
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.settings import GroupSettings
from penstock.groups.targets import AT_ONCE_MAX, SLICES_PER_TURN
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.groups.stage import Stage

SIZE = 1000


def crowded(size: int) -> Stage:
    """A group of `size` members that has been assigned everything, and one that has just joined it."""
    stage = Stage(GroupSettings(), topics={"t": size + 1})
    for number in range(size):
        beat(stage, f"m{number}", 0)
    settle(stage)
    beat(stage, "late", 0)
    return stage


def settle(stage: Stage) -> None:
    """Until there is a target for the group's epoch, and it is old enough for another."""
    stage.sleep(1000)
    beat(stage, "m0", group(stage).members["m0"].epoch)
    stage.sleep(2000)
    assert group(stage).assignment_epoch == group(stage).epoch


def beat(stage: Stage, member: str, epoch: int) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=-1 if epoch else 10_000,
        subscribed_topic_names=None if epoch else ["t"],
        topic_partitions=None if epoch else [],
    )
    client = stage.client("c", 1)
    response = stage.ask(member, lambda shard, _: shard.consumer_heartbeat(request, client)).response
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


def group(stage: Stage) -> ConsumerGroup:
    found = stage.shard._ledger.groups["g"]
    assert isinstance(found, ConsumerGroup)
    return found


def test_a_small_group_has_its_target_at_once() -> None:
    stage = crowded(AT_ONCE_MAX - 1)
    assert group(stage).assignment_epoch == group(stage).epoch
    assert group(stage).target["late"]


def test_a_large_group_gets_a_whole_target_after_many_turns() -> None:
    """And nothing of it before: members go on with the one that they have."""
    stage = crowded(SIZE)
    before = dict(group(stage).target)
    epoch, assigned = group(stage).epoch, group(stage).assignment_epoch
    assert assigned < epoch
    turns = 0
    while group(stage).assignment_epoch == assigned:
        assert group(stage).target == before
        assert beat(stage, "m7", group(stage).members["m7"].epoch).assignment is None
        stage.sleep(1)
        turns += 1
    assert group(stage).assignment_epoch == epoch
    assert {p for t in group(stage).target.values() for s in t.values() for p in s} == {*range(SIZE + 1)}
    # Looking at who is there, what they have, what they keep, what they get, and what is new.
    assert turns >= 5 * SIZE // (SLICE * SLICES_PER_TURN)


def test_who_leaves_meanwhile_is_not_brought_back() -> None:
    stage = crowded(SIZE)
    epoch = group(stage).epoch
    stage.sleep(3)
    beat(stage, "late", -1)
    stage.sleep(1000)
    assert group(stage).assignment_epoch == epoch < group(stage).epoch
    assert "late" not in group(stage).target and "late" not in group(stage).members
    settle(stage)
    assert {p for t in group(stage).target.values() for s in t.values() for p in s} == {*range(SIZE + 1)}


def test_a_group_that_is_gone_ends_its_computation() -> None:
    stage = crowded(AT_ONCE_MAX + 1)
    stage.sleep(1)
    for member in list(group(stage).members):
        beat(stage, member, -1)
    stage.ask("admin", lambda shard, _: shard.delete("g"))
    stage.sleep(1000)
    assert "g" not in stage.shard._ledger.groups
