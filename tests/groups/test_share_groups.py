"""The simple assignor of share groups, and their administration."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping

import pytest

from penstock.groups.assignors import Assignment
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard
from penstock.groups.share_assignor import assign_shares
from penstock.model.errors import ErrorCode
from penstock.model.steps import at_once
from penstock.wire.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.groups.shard_driver import ShardDriver, topic_id

TOPIC = bytes(16)


def assigned(
    wanted: Mapping[str, Collection[bytes]],
    partitions: Mapping[bytes, Collection[int]],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    return at_once(assign_shares(wanted, partitions, current))


@pytest.mark.parametrize(("members", "partitions"), [(1, 5), (3, 3), (3, 10), (10, 3), (7, 1), (200, 50)])
def test_every_partition_and_every_member_has_one(members: int, partitions: int) -> None:
    wanted = {f"m{n:03}": [TOPIC] for n in range(members)}
    found = assigned(wanted, {TOPIC: range(partitions)}, {})
    counts = Counter(index for target in found.values() for index in target[TOPIC])
    assert set(counts) == set(range(partitions))
    assert max(counts.values()) - min(counts.values()) <= 1
    sizes = [len(target[TOPIC]) for target in found.values()]
    assert max(sizes) - min(sizes) <= 1


def test_members_keep_their_partitions() -> None:
    wanted, partitions = {f"m{n}": [TOPIC] for n in range(2)}, {TOPIC: range(4)}
    before = assigned(wanted, partitions, {})
    assert assigned(wanted, partitions, before) == before
    wanted["m2"] = [TOPIC]
    after = assigned(wanted, partitions, before)
    assert all(after[m][TOPIC] & before[m][TOPIC] for m in before)


def test_different_subscriptions() -> None:
    rng = random.Random(1)
    topics = {bytes([n]) * 16: range(rng.randrange(1, 5)) for n in range(8)}
    before: dict[str, Assignment] = {}
    for _ in range(100):
        wanted = {
            f"m{n}": [topic for topic in topics if rng.random() < 0.4] for n in range(rng.randrange(1, 9))
        }
        found = assigned(wanted, topics, before)
        for member, target in found.items():
            assert set(target) <= set(wanted[member])
            assert bool(target) == bool(wanted[member])
        flat = {(topic, i) for target in found.values() for topic, indexes in target.items() for i in indexes}
        assert flat == {(topic, i) for names in wanted.values() for topic in names for i in topics[topic]}
        before = found


def test_many_partitions_take_many_steps() -> None:
    steps = sum(1 for _ in assign_shares({"a": [TOPIC], "b": [TOPIC]}, {TOPIC: range(30_000)}, {}))
    assert steps > 30


def test_more_partitions_than_the_record_of_a_share_group_can_have() -> None:
    """The log refused the record, and the coordinator discarded the shard with all of its groups."""
    driver = ShardDriver(topics={"t": 1000})
    driver.shard.outbox.record_bytes_max = lambda: 3000
    joining = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    joined = driver.submit("m", lambda shard, _: shard.shares.heartbeat(joining, driver.client("c", 1)))
    assert joined.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert all(len(value or b"") < 3000 for _, value in driver.log)
    driver.sleep(60_000)
    assert driver.shard.shares.find("g").is_empty


def test_an_expired_member_does_not_delay_the_deletion_of_its_group() -> None:
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
