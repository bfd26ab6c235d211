"""Share groups with many partitions: changes that are computed over many turns."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.groups.large_assignments import TOPICS_AT_ONCE_MAX
from penstock.groups.settings import GroupSettings
from penstock.groups.share_group import ShareGroup
from penstock.groups.share_state import InitializeShareState
from penstock.model.errors import ErrorCode
from penstock.wire.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.groups.shard_driver import ShardDriver, topic_id

_TOPICS = [f"t-{i}" for i in range(TOPICS_AT_ONCE_MAX + 100)]
_PARTITIONS = 3
_ALL = {topic_id(topic): set(range(_PARTITIONS)) for topic in _TOPICS}


def _driver() -> ShardDriver:
    return ShardDriver(GroupSettings(), topics=dict.fromkeys(_TOPICS, _PARTITIONS))


def _group(driver: ShardDriver) -> ShareGroup:
    return driver.shard.shares.find("g")


def _beat(driver: ShardDriver, member: str = "m") -> ShareGroupHeartbeatResponse:
    known = driver.shard.shares.get("g")
    has = None if known is None else known.members.get(member)
    request = ShareGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=0 if has is None else has.epoch,
        subscribed_topic_names=_TOPICS if has is None else None,
    )
    client = driver.client("c", 1)
    found = driver.submit(member, lambda shard, _: shard.shares.heartbeat(request, client))
    assert found.error == ErrorCode.NONE
    assert isinstance(found.response, ShareGroupHeartbeatResponse)
    return found.response


def _effects(driver: ShardDriver) -> list[InitializeShareState]:
    return [effect for effect in driver.effects if isinstance(effect, InitializeShareState)]


def _state(group: ShareGroup) -> object:
    members = {m.id: (m.epoch, m.previous_epoch, m.assigned) for m in group.members.values()}
    return members, group.share_partitions, group.topic_names, group.target


def _answer(
    driver: ShardDriver,
    wanted: Mapping[bytes, Collection[int]],
    failed: Collection[tuple[bytes, int]] = (),
) -> None:
    driver.notify(lambda shard: shard.shares.state.creation_ended(_group(driver), wanted, failed))


def _join(driver: ShardDriver) -> None:
    """Join; one of the next heartbeats begins to create the state of all share partitions."""
    while not _effects(driver):
        assert _beat(driver).heartbeat_interval_ms < GroupSettings().share_heartbeat_ms
        driver.sleep(100)


def _created(driver: ShardDriver) -> None:
    """Join, and have the state of all share partitions created."""
    _join(driver)
    (effect,) = _effects(driver)
    _answer(driver, effect.start_offsets)
    driver.sleep(1000)


def test_a_join_begins_to_create_the_state_of_many_partitions() -> None:
    driver = _driver()
    _beat(driver)
    assert not _group(driver).initializing
    turns = 0
    while not _effects(driver):
        assert _beat(driver).heartbeat_interval_ms < GroupSettings().share_heartbeat_ms
        driver.sleep(1)
        turns += 1
    assert turns > 10
    assert _group(driver).initializing == _ALL
    (effect,) = _effects(driver)
    assert {topic: set(offsets) for topic, offsets in effect.start_offsets.items()} == _ALL
    _beat(driver)
    driver.sleep(1000)
    assert len(_effects(driver)) == 1, "a creation is repeated only after a time without an answer"
    assert _state(_group(driver)) == _state(driver.replica().shares.find("g"))


def test_the_outcome_of_the_creation_is_recorded_later() -> None:
    driver = _driver()
    _join(driver)
    (effect,) = _effects(driver)
    failed = [(topic_id("t-1"), 2)]
    _answer(driver, effect.start_offsets, failed)
    assert not _group(driver).initialized
    driver.sleep(1000)
    assert _group(driver).initialized == _ALL | {topic_id("t-1"): {0, 1}}
    assert not _group(driver).initializing
    while len(_effects(driver)) < 2:
        _beat(driver)
        driver.sleep(100)
    again = _effects(driver)[-1]
    assert again.start_offsets == {topic_id("t-1"): {2: -1}}
    assert _state(_group(driver)) == _state(driver.replica().shares.find("g"))


def test_a_change_meanwhile_is_kept() -> None:
    """A topic is deleted while the creation of all others is computed."""
    driver = _driver()
    _created(driver)
    assert _group(driver).initialized == _ALL
    driver.add_topic("new", _PARTITIONS)
    wanted: dict[bytes, Collection[int]] = {topic_id("new"): {0: -1, 1: -1, 2: -1}}
    _answer(driver, wanted)
    driver.sleep(2)
    gone = topic_id("t-5")
    driver.notify(lambda shard: shard.shares.state.topics_deleted(_group(driver), {gone}))
    driver.sleep(1000)
    expected = {**_ALL, topic_id("new"): {0, 1, 2}}
    del expected[gone]
    assert _group(driver).initialized == expected
    assert _state(_group(driver)) == _state(driver.replica().shares.find("g"))


def test_a_member_gets_many_partitions_with_a_later_heartbeat() -> None:
    driver = _driver()
    _created(driver)
    turns = 0
    while not _group(driver).members["m"].assigned:
        driver.sleep(1)
        response = _beat(driver)
        turns += 1
    assert turns > 10
    assert _group(driver).members["m"].assigned == _ALL
    assert response.assignment is not None
    found = {t.topic_id: set(t.partitions) for t in response.assignment.topic_partitions}
    assert found == _ALL
    assert response.heartbeat_interval_ms == GroupSettings().share_heartbeat_ms
    assert _state(_group(driver)) == _state(driver.replica().shares.find("g"))
