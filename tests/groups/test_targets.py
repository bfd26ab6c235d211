"""Targets of large consumer groups: computed over many turns, written in one."""

from __future__ import annotations

from penstock.groups.assignors import SLICE
from penstock.groups.computations import SLICES_PER_TURN
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.settings import GroupSettings
from penstock.groups.targets import AT_ONCE_MAX, PARTITIONS_AT_ONCE_MAX, TARGET
from penstock.model.errors import ErrorCode
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.groups.shard_driver import PendingRequest, ShardDriver

SIZE = 1000


def crowded(size: int) -> ShardDriver:
    """A group of `size` members with an assignment, and a member that has just joined."""
    driver = ShardDriver(GroupSettings(), topics={"t": size + 1})
    for number in range(size):
        beat(driver, f"m{number}", 0)
    settle(driver)
    beat(driver, "late", 0)
    return driver


def settle(driver: ShardDriver) -> None:
    """Wait until the target is computed, and old enough for another one."""
    driver.sleep(1000)
    beat(driver, "m0", group(driver).members["m0"].epoch)
    driver.sleep(2000)
    assert group(driver).assignment_epoch == group(driver).epoch


def beat(driver: ShardDriver, member: str, epoch: int, topic: str = "t") -> ConsumerGroupHeartbeatResponse:
    response = send(driver, member, epoch, topic).response
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


def send(driver: ShardDriver, member: str, epoch: int, topic: str = "t") -> PendingRequest:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=-1 if epoch else 10_000,
        subscribed_topic_names=None if epoch else [topic],
        topic_partitions=None if epoch else [],
    )
    client = driver.client("c", 1)
    return driver.submit(member, lambda shard, _: shard.members.consumer_heartbeat(request, client))


def group(driver: ShardDriver) -> ConsumerGroup:
    found = driver.shard._ledger.groups["g"]
    assert isinstance(found, ConsumerGroup)
    return found


def test_a_small_group_has_its_target_at_once() -> None:
    driver = crowded(AT_ONCE_MAX - 1)
    assert group(driver).assignment_epoch == group(driver).epoch
    assert group(driver).target["late"]


def test_a_large_group_gets_a_whole_target_after_many_turns() -> None:
    """Until then members keep the previous target."""
    driver = crowded(SIZE)
    before = dict(group(driver).target)
    epoch, assigned = group(driver).epoch, group(driver).assignment_epoch
    assert assigned < epoch
    turns = 0
    while group(driver).assignment_epoch == assigned:
        assert group(driver).target == before
        assert beat(driver, "m7", group(driver).members["m7"].epoch).assignment is None
        driver.sleep(1)
        turns += 1
    assert group(driver).assignment_epoch == epoch
    assert {p for t in group(driver).target.values() for s in t.values() for p in s} == {*range(SIZE + 1)}
    # Members, owned partitions, kept partitions, new partitions, and changed records.
    assert turns >= 5 * SIZE // (SLICE * SLICES_PER_TURN)


def test_a_member_that_leaves_meanwhile_does_not_come_back() -> None:
    driver = crowded(SIZE)
    epoch = group(driver).epoch
    driver.sleep(3)
    beat(driver, "late", -1)
    driver.sleep(1000)
    assert group(driver).assignment_epoch == epoch < group(driver).epoch
    assert "late" not in group(driver).target and "late" not in group(driver).members
    settle(driver)
    assert {p for t in group(driver).target.values() for s in t.values() for p in s} == {*range(SIZE + 1)}


def test_a_deleted_group_ends_its_computation() -> None:
    driver = crowded(AT_ONCE_MAX + 1)
    driver.sleep(1)
    for member in list(group(driver).members):
        beat(driver, member, -1)
    driver.submit("admin", lambda shard, _: shard.delete("g"))
    driver.sleep(1000)
    assert "g" not in driver.shard._ledger.groups


def uneven() -> ShardDriver:
    """A member whose partitions are too many for its record joins a member with one partition."""
    driver = ShardDriver(GroupSettings(), topics={"t": 1, "large": PARTITIONS_AT_ONCE_MAX + 1})
    driver.shard.outbox.record_bytes_max = lambda: 6 * PARTITIONS_AT_ONCE_MAX
    assert beat(driver, "small", 0).member_epoch
    driver.sleep(2000)
    beat(driver, "greedy", 0, "large")
    driver.sleep(1000)
    assert (TARGET, "g") not in driver.shard.timers
    return driver


def test_a_target_that_no_record_can_have_is_computed_once() -> None:
    """Each heartbeat computed it again, and no client and no log line said why."""
    driver = uneven()
    epoch = group(driver).epoch
    for _ in range(5):
        assert beat(driver, "small", group(driver).members["small"].epoch).assignment is None
        assert (TARGET, "g") not in driver.shard.timers
        driver.sleep(1000)
    (refused,) = driver.refused
    assert (refused.group_id, refused.epoch, refused.members) == ("g", epoch, 1)
    assert refused.member_id == "greedy" and "too large" in refused.reason


def test_the_requests_of_members_with_too_many_partitions_fail() -> None:
    driver = uneven()
    for _ in range(3):
        assert send(driver, "greedy", group(driver).members["greedy"].epoch).error == (
            ErrorCode.UNKNOWN_SERVER_ERROR
        )


def test_a_group_recovers_when_a_member_with_too_many_partitions_is_gone() -> None:
    driver = uneven()
    for _ in range(50):
        send(driver, "greedy", group(driver).members["greedy"].epoch)
        beat(driver, "small", group(driver).members["small"].epoch)
        driver.sleep(1000)
        if "greedy" not in group(driver).members:
            break
    assert set(group(driver).members) == {"small"}
    beat(driver, "small", group(driver).members["small"].epoch)
    assert group(driver).assignment_epoch == group(driver).epoch
    assert group(driver).target["small"]


def test_a_new_member_without_a_possible_target_expires() -> None:
    """Its join was refused, but its record stayed without a session: no member got a target again."""
    driver = ShardDriver(GroupSettings(), topics={"large": PARTITIONS_AT_ONCE_MAX})
    driver.shard.outbox.record_bytes_max = lambda: PARTITIONS_AT_ONCE_MAX
    assert send(driver, "greedy", 0, "large").error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(driver.refused) == 1
    driver.sleep(60_000)
    assert not group(driver).members
