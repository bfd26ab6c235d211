"""Assignments of members with many partitions: prepared over many turns, written by a heartbeat."""

from __future__ import annotations

from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.epoch_group import MemberState
from penstock.groups.large_assignments import TOPICS_AT_ONCE_MAX
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.groups.shard_driver import ShardDriver, topic_id

_TOPICS = [f"t-{i}" for i in range(2 * TOPICS_AT_ONCE_MAX + 100)]
#: the partitions of each topic
_PARTITIONS = 3
_ALL = {(topic_id(topic), index) for topic in _TOPICS for index in range(_PARTITIONS)}


def _driver() -> ShardDriver:
    return ShardDriver(GroupSettings(), topics=dict.fromkeys(_TOPICS, _PARTITIONS))


def _beat(driver: ShardDriver, member: str, **more: object) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat of a member, its first one if it has not joined."""
    known = _group(driver).members.get(member) if "g" in driver.shard._ledger.groups else None
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member, member_epoch=0 if known is None else known.epoch
    )
    if known is None:
        request.rebalance_timeout_ms = 10_000
        request.subscribed_topic_names, request.topic_partitions = _TOPICS, []
    for name, value in more.items():
        setattr(request, name, value)
    client = driver.client("c", 1)
    response = driver.submit(
        member, lambda shard, _: shard.members.consumer_heartbeat(request, client)
    ).response
    assert isinstance(response, ConsumerGroupHeartbeatResponse)
    return response


def _group(driver: ShardDriver) -> ConsumerGroup:
    found = driver.shard._ledger.groups["g"]
    assert isinstance(found, ConsumerGroup)
    return found


def _assigned(driver: ShardDriver, member: str) -> set[tuple[bytes, int]]:
    found = _group(driver).members[member]
    return {(topic, index) for topic, indexes in found.assigned.items() for index in indexes}


def _wait_for_target(driver: ShardDriver) -> None:
    while _group(driver).assignment_epoch < _group(driver).epoch:
        driver.sleep(100)
        for member in list(_group(driver).members):
            if not _group(driver).members[member].prepared:
                _beat(driver, member)


def _state(shard: GroupShard) -> object:
    group = shard._ledger.groups["g"]
    assert isinstance(group, ConsumerGroup)
    members = group.members.values()
    states = {m.id: (m.epoch, m.previous_epoch, m.state, m.assigned, m.revoking) for m in members}
    return states, group.owners, group.target, group.assignment_epoch


def _joined() -> ShardDriver:
    """A member that has a large target, whose assignment is being prepared."""
    driver = _driver()
    _beat(driver, "m")
    while _group(driver).assignment_epoch < _group(driver).epoch:
        driver.sleep(1)
    assert not _beat(driver, "m").assignment
    return driver


def test_a_later_heartbeat_writes_the_prepared_assignment() -> None:
    driver = _joined()
    epoch = _group(driver).members["m"].epoch
    turns = 0
    while _group(driver).members["m"].prepared is None:
        response = _beat(driver, "m")
        assert (response.member_epoch, response.assignment) == (epoch, None)
        assert response.heartbeat_interval_ms < GroupSettings().consumer_heartbeat_ms
        driver.sleep(1)
        turns += 1
    assert turns > 10
    records = len(driver.log)
    response = _beat(driver, "m")
    assert len(driver.log) == records + 1
    assert response.assignment is not None
    found = {(t.topic_id, index) for t in response.assignment.topic_partitions for index in t.partitions}
    assert found == _ALL == _assigned(driver, "m")
    assert response.member_epoch == _group(driver).epoch
    assert response.heartbeat_interval_ms == GroupSettings().consumer_heartbeat_ms
    assert _state(driver.shard) == _state(driver.replica())


def test_a_member_that_revokes_many_partitions() -> None:
    """A second member gets half of them, when the first one has reported that it has revoked them."""
    driver = _joined()
    driver.sleep(1000)
    _beat(driver, "m")
    driver.sleep(3000)
    _beat(driver, "n")
    _wait_for_target(driver)
    while _group(driver).members["m"].state is not MemberState.UNREVOKED:
        driver.sleep(1)
        _beat(driver, "m")
        assert not _assigned(driver, "n")
    kept = _group(driver).members["m"].assigned
    assert 0 < len(_assigned(driver, "m")) < len(_ALL)
    assert _state(driver.shard) == _state(driver.replica())
    owned = [TopicPartitions(topic_id=topic, partitions=list(indexes)) for topic, indexes in kept.items()]
    while _assigned(driver, "m") | _assigned(driver, "n") != _ALL:
        driver.sleep(1)
        _beat(driver, "m", topic_partitions=owned)
        _beat(driver, "n")
        assert _assigned(driver, "m").isdisjoint(_assigned(driver, "n"))
    assert _state(driver.shard) == _state(driver.replica())


def test_an_outdated_preparation_is_not_written() -> None:
    driver = _joined()
    driver.sleep(1000)
    prepared = _group(driver).members["m"].prepared
    assert prepared is not None
    driver.sleep(3000)
    _beat(driver, "n")
    _wait_for_target(driver)
    _group(driver).members["m"].prepared = prepared
    records = len(driver.log)
    assert _beat(driver, "m").assignment is None
    assert len(driver.log) == records
    assert not _assigned(driver, "m")


def test_a_member_that_leaves_ends_its_preparation() -> None:
    driver = _joined()
    _beat(driver, "m", member_epoch=-1)
    driver.sleep(1000)
    assert not _group(driver).members and not _group(driver).owners
    assert _state(driver.shard) == _state(driver.replica())


def test_the_assignment_of_a_small_member_is_written_at_once() -> None:
    driver = ShardDriver(GroupSettings(), topics={"t": 10})
    response = _beat(driver, "m", subscribed_topic_names=["t"])
    assert response.assignment is not None
    assert response.assignment.topic_partitions[0].partitions == list(range(10))


def test_a_static_member_with_many_partitions_rejoins() -> None:
    """Its partitions stay with it, though it rejoins as a new member; the other member keeps its own."""
    driver = _driver()
    for member in "ab":
        _beat(driver, member, instance_id=f"{member}-instance")
    settled = _settle(driver, "a", "b")
    assert sum(map(len, settled.values())) == len(_ALL)
    _beat(driver, "a", instance_id="a-instance", member_epoch=-2)
    left = _group(driver).members["a"]
    assert (left.epoch, left.assigned) == (-2, {})
    assert _state(driver.shard) == _state(driver.replica())
    _beat(driver, "b", instance_id="b-instance")
    assert _assigned(driver, "b") == settled["b"]
    _beat(driver, "a2", instance_id="a-instance")
    assert _group(driver).instances["a-instance"] == "a2" and "a" not in _group(driver).members
    assert _settle(driver, "a2", "b") == {"a2": settled["a"], "b": settled["b"]}
    assert _state(driver.shard) == _state(driver.replica())


def _settle(driver: ShardDriver, *members: str) -> dict[str, set[tuple[bytes, int]]]:
    """Send heartbeats until all members have reached the target of the group."""
    while _group(driver).state_name != "Stable":
        driver.sleep(1000)
        for member in members:
            owned = [
                TopicPartitions(topic_id=topic, partitions=list(indexes))
                for topic, indexes in _group(driver).members[member].assigned.items()
            ]
            _beat(driver, member, instance_id=f"{member[0]}-instance", topic_partitions=owned)
    return {member: _assigned(driver, member) for member in members}
