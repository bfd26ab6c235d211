"""What was committed to a topic is nothing to another of the same name, whoever was away when it went."""

from __future__ import annotations

from penstock.groups.shard import GroupShard
from penstock.model.ids import NO_TOPIC_ID, TopicId
from penstock.wire.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from penstock.wire.metadata_records import TopicRecord
from tests.groups.stage import Stage, topic_id

NEW_ID = TopicId(b"new".ljust(16, b"."))
CHECK_MS = 600_000


def commit(stage: Stage, offset: int, id: TopicId) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", topic_id=id, partitions=[partition])
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
    asker = stage.ask("m", lambda shard, _: shard.commit(request, stage.client("m")))
    assert asker.response is not None


def offsets(stage: Stage, *names: str) -> dict[str, int]:
    """By name, as most clients ask; all without any."""
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names]
    request = OffsetFetchRequestGroup(group_id="g", topics=topics or None)
    response = stage.ask("m", lambda shard, _: shard.fetch(request)).response
    assert isinstance(response, OffsetFetchResponseGroup)
    return {topic.name: topic.partitions[0].committed_offset for topic in response.topics}


def recreated(committed_as: TopicId) -> Stage:
    """A coordinator that was not there when "t", of which the group had read 7, was deleted and made anew."""
    stage = Stage(topics={"t": 1})
    commit(stage, 7, committed_as)
    stage.remove_topic("t")
    stage.image.apply(TopicRecord(name="t", topic_id=NEW_ID), stage.image.offset + 1)
    stage.restart()
    return stage


def test_a_new_topic_is_not_read_from_where_an_old_one_was_left() -> None:
    stage = recreated(topic_id("t"))
    assert offsets(stage, "t") == {"t": -1}
    assert offsets(stage) == {}
    commit(stage, 2, NEW_ID)
    assert offsets(stage, "t") == offsets(stage) == {"t": 2}


def test_the_log_forgets_it_in_time() -> None:
    stage = recreated(topic_id("t"))
    assert kept(stage.replica()) == 7
    stage.sleep(CHECK_MS)
    assert kept(stage.replica()) is None


def test_a_commit_of_before_topics_had_ids_is_kept() -> None:
    stage = recreated(NO_TOPIC_ID)
    stage.sleep(CHECK_MS)
    assert offsets(stage, "t") == {"t": 7}


def kept(shard: GroupShard) -> int | None:
    committed = shard.offsets.get("g", "t", 0)
    return None if committed is None else committed.offset
