"""The simple assignor of share groups, and their administration."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.share_assignor import assign_shares
from penstock.model.errors import ErrorCode
from penstock.wire.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.groups.shard_driver import ShardDriver, topic_id

TOPIC = bytes(16)


@pytest.mark.parametrize(("members", "partitions"), [(1, 5), (3, 3), (3, 10), (10, 3), (7, 1), (200, 50)])
def test_every_partition_and_every_member_has_one(members: int, partitions: int) -> None:
    wanted = {f"m{n:03}": [(TOPIC, index) for index in range(partitions)] for n in range(members)}
    found = assign_shares(wanted, {})
    counts = Counter(index for target in found.values() for index in target[TOPIC])
    assert set(counts) == set(range(partitions))
    assert max(counts.values()) - min(counts.values()) <= 1
    sizes = [len(target[TOPIC]) for target in found.values()]
    assert max(sizes) - min(sizes) <= 1


def test_members_keep_what_they_have() -> None:
    wanted = {f"m{n}": [(TOPIC, index) for index in range(4)] for n in range(2)}
    before = assign_shares(wanted, {})
    assert assign_shares(wanted, before) == before
    wanted["m2"] = wanted["m0"]
    after = assign_shares(wanted, before)
    assert all(after[m][TOPIC] & before[m][TOPIC] for m in before)


def test_different_subscriptions() -> None:
    rng = random.Random(1)
    for _ in range(100):
        wanted = {
            f"m{n}": [(TOPIC, index) for index in range(8) if rng.random() < 0.4]
            for n in range(rng.randrange(1, 9))
        }
        found = assign_shares(wanted, {})
        for member, target in found.items():
            assert {(TOPIC, i) for i in target.get(TOPIC, ())} <= set(wanted[member])
            assert bool(target) == bool(wanted[member])
        assigned = {i for target in found.values() for i in target.get(TOPIC, ())}
        assert assigned == {i for partitions in wanted.values() for _, i in partitions}


def test_an_expired_member_does_not_hold_up_the_deletion_of_its_group() -> None:
    """A busy broker reads requests before it looks at the timers that are due."""
    driver = ShardDriver(topics={"t": 1})
    joining = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    driver.submit("m", lambda shard, _: shard.shares.heartbeat(joining, driver.client("m", 1)))

    def delete(shard: GroupShard, _: object) -> None:
        shard.share_admin.begin_group_deletion("g")

    driver.now_ms += GroupSettings().share_session_timeout_ms - 1
    assert driver.submit("admin", delete).error == ErrorCode.NON_EMPTY_GROUP
    driver.now_ms += 1
    assert driver.submit("admin", delete).error == ErrorCode.NONE


def test_a_group_forgets_topics_that_were_deleted_during_a_load() -> None:
    driver = ShardDriver(topics={"t": 1, "u": 1})
    joining = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t", "u"]
    )
    driver.submit("m", lambda shard, _: shard.shares.heartbeat(joining, driver.client("m", 1)))
    created: dict[bytes, set[int]] = {topic_id("t"): {0}, topic_id("u"): {0}}
    driver.notify(lambda shard: shard.shares.state.initialized(shard.shares.find("g"), created))
    driver.remove_topic("t")
    driver.restart()
    driver.notify(lambda shard: shard.expire_offsets())
    assert driver.shard.shares.find("g").initialized == {topic_id("u"): {0}}
    assert driver.replica().shares.find("g").initialized == {topic_id("u"): {0}}
