"""Small requests whose response is large: many groups, and a group with many members."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from penstock.wire.apis.alter_client_quotas import (
    ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlteredEntry,
    OpData,
)
from penstock.wire.apis.consumer_group_describe import CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.describe_client_quotas import (
    DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    EntityData,
)
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.hostile.clients import Client, Kind, frame_of, prepare
from tests.hostile.meter import Meter
from tests.hostile.ordinary import TOPICS
from tests.hostile.target import Target, target

pytestmark = [pytest.mark.process, pytest.mark.slow]
_GROUPS = 15_000
_MEMBERS = 1500
_PIPELINED = 500
_PARTITIONS = 10_000
_ENTITIES = 16_000
#: a step that lists some of many groups
_SLICE_MS = 8.0
TOPIC = next(iter(TOPICS))


def _commit(group: str) -> bytes:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])
    return frame_of(OFFSET_COMMIT, 8, request)


def _join(member: str) -> bytes:
    request = ConsumerGroupHeartbeatRequest(
        group_id="many",
        member_id=member,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    return frame_of(CONSUMER_GROUP_HEARTBEAT, 1, request)


@pytest.fixture(scope="module")
def crowded() -> Iterator[Target]:
    settings = {"offsets.topic.num.partitions": "1", "group.consumer.max.size": str(_MEMBERS)}
    with target(settings) as running:
        prepare(running)
        frames = [_commit(f"g{number}") for number in range(_GROUPS)]
        frames += [_join(f"m{number}") for number in range(_MEMBERS)]
        with Client(running, Kind.OPEN) as client:
            for start in range(0, len(frames), _PIPELINED):
                some = frames[start : start + _PIPELINED]
                client.send(b"".join(some))
                for _ in some:
                    client.receive()
        yield running


def test_a_list_of_many_groups_is_made_in_slices(crowded: Target) -> None:
    with closing(Meter(crowded)) as meter:
        _check_list(meter)


def _check_list(meter: Meter) -> None:
    frame = frame_of(LIST_GROUPS, 5, ListGroupsRequest())
    reading = meter.within_limits(Kind.OPEN, lambda: frame, _SLICE_MS)
    assert len(meter.client(Kind.OPEN).call(LIST_GROUPS, ListGroupsRequest()).groups) == _GROUPS + 1
    # 15 to 25 ms before there were slices.
    assert reading.step_ms < _SLICE_MS * meter.limits.scale, reading


def test_a_group_with_many_members_is_described(crowded: Target) -> None:
    request = ConsumerGroupDescribeRequest(group_ids=["many"])
    with closing(Meter(crowded)) as meter:
        frame = frame_of(CONSUMER_GROUP_DESCRIBE, 1, request)
        reading = meter.within_limits(Kind.OPEN, lambda: frame)
        assert not reading.exceeds(meter.limits), reading


def test_many_partitions_are_listed_in_slices() -> None:
    with target() as running:
        prepare(running)
        with Client(running, Kind.OPEN) as client:
            topic = CreatableTopic(name="partitions", num_partitions=_PARTITIONS, replication_factor=1)
            client.call(CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
            response = client.call(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None))
            topics = {each.name: each for each in response.results[0].topics}
            indexes = sorted(each.partition_index for each in topics["partitions"].partitions)
            assert indexes == list(range(_PARTITIONS))
        with closing(Meter(running)) as meter:
            frame = frame_of(
                DESCRIBE_LOG_DIRS, DESCRIBE_LOG_DIRS.max_version, DescribeLogDirsRequest(topics=None)
            )
            reading = meter.within_limits(Kind.OPEN, lambda: frame)
            # 45 ms before there were slices.
            assert not reading.exceeds(meter.limits), reading


def test_many_entities_with_quotas_are_described_in_slices() -> None:
    """10,000 entities took 37 to 48 ms."""
    with target() as running:
        prepare(running)
        with Client(running, Kind.OPEN) as client:
            for start in range(0, _ENTITIES, _ENTITIES // 2):
                entries = [
                    AlteredEntry(
                        entity=[EntityData(entity_type="user", entity_name=f"user-{start + i}")],
                        ops=[OpData(key="producer_byte_rate", value=1e9)],
                    )
                    for i in range(_ENTITIES // 2)
                ]
                client.call(ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest(entries=entries))
            response = client.call(DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest(components=[]))
            assert len(response.entries) == _ENTITIES
        with closing(Meter(running)) as meter:
            frame = frame_of(DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest(components=[]))
            reading = meter.within_limits(Kind.OPEN, lambda: frame)
            assert not reading.exceeds(meter.limits), reading
