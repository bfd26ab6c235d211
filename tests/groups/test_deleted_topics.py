"""Offsets of a deleted topic are not used for a new topic of the same name, after an outage either."""

from __future__ import annotations

from penstock.groups.shard import GroupShard
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.wire.metadata_records import TopicRecord
from tests.groups.offset_commits import CHECK_MS, commit, offsets
from tests.groups.shard_driver import ShardDriver, topic_id

NEW_ID = TopicId(b"new".ljust(16, b"."))


def recreated(committed_as: TopicId) -> ShardDriver:
    """A coordinator that was away when "t", with a committed offset of 7, was deleted and created again."""
    driver = ShardDriver(topics={"t": 1})
    commit(driver, 7, committed_as)
    driver.remove_topic("t")
    driver.image.apply(TopicRecord(name="t", topic_id=NEW_ID), driver.image.offset + 1)
    driver.restart()
    return driver


def test_offsets_of_a_deleted_topic_are_not_used_for_a_new_one() -> None:
    driver = recreated(topic_id("t"))
    assert offsets(driver, "t") == {"t": -1}
    assert offsets(driver) == {}
    commit(driver, 2, NEW_ID)
    assert offsets(driver, "t") == offsets(driver) == {"t": 2}


def test_offsets_of_a_deleted_topic_are_removed_from_the_log() -> None:
    driver = recreated(topic_id("t"))
    assert kept(driver.replica()) == 7
    driver.sleep(CHECK_MS)
    assert kept(driver.replica()) is None


def test_a_commit_without_a_topic_id_is_kept() -> None:
    driver = recreated(NO_TOPIC_ID)
    driver.sleep(CHECK_MS)
    assert offsets(driver, "t") == {"t": 7}


def kept(shard: GroupShard) -> int | None:
    committed = shard.offsets.get("g", "t", 0)
    return None if committed is None else committed.offset
