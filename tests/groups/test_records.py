"""The records of `__consumer_offsets` are Kafka's, byte by byte."""

from __future__ import annotations

import pytest

from penstock.groups import records
from penstock.groups.records import decode_record, encode_record
from penstock.groups.streams import records as streams
from penstock.model.errors import ProtocolError
from penstock.wire.schema import Struct

OFFSET_KEY = records.OffsetCommitKey(group="g", topic="t", partition=3)
RECORDS: list[tuple[Struct, Struct]] = [
    (OFFSET_KEY, records.OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, topic_id=b"x" * 16)),
    (
        records.GroupMetadataKey(group="g"),
        records.GroupMetadataValue(
            protocol_type="consumer",
            generation=3,
            protocol="range",
            leader="a",
            current_state_timestamp=7,
            members=[
                records.GroupMetadataMember(
                    member_id="a",
                    group_instance_id="i",
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=1,
                    session_timeout=2,
                    subscription=b"s",
                    assignment=b"a",
                )
            ],
        ),
    ),
    (
        records.ConsumerGroupMetadataKey(group_id="g"),
        records.ConsumerGroupMetadataValue(epoch=4, metadata_hash=-6),
    ),
    (
        records.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        records.ConsumerGroupMemberMetadataValue(
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            classic_member_metadata=records.ClassicMemberMetadata(
                session_timeout_ms=5,
                supported_protocols=[records.ClassicProtocol(name="range", metadata=b"x")],
            ),
        ),
    ),
    (
        records.ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=3),
    ),
    (
        records.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        records.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[records.TargetTopicPartitions(topic_id=b"t" * 16, partitions=[1, 2])]
        ),
    ),
    (
        records.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        records.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=1,
            assigned_partitions=[
                records.CurrentTopicPartitions(topic_id=b"t" * 16, partitions=[1], assignment_epochs=[2])
            ],
        ),
    ),
    (
        records.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="a.*"),
        records.ConsumerGroupRegularExpressionValue(topics=["ab"], version=1, timestamp=2),
    ),
    (
        streams.StreamsGroupMetadataKey(group_id="g"),
        streams.StreamsGroupMetadataValue(
            epoch=2,
            metadata_hash=3,
            validated_topology_epoch=1,
            last_assignment_configs=[streams.KeyValue(key="k", value="v")],
        ),
    ),
    (
        streams.StreamsGroupMemberMetadataKey(group_id="g", member_id="m"),
        streams.StreamsGroupMemberMetadataValue(
            client_id="c",
            client_host="/h",
            process_id="p",
            user_endpoint=streams.Endpoint(host="h", port=65_535),
            client_tags=[streams.KeyValue(key="k", value="v")],
        ),
    ),
    (
        streams.StreamsGroupTargetAssignmentMetadataKey(group_id="g"),
        streams.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=3),
    ),
    (
        streams.StreamsGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        streams.StreamsGroupTargetAssignmentMemberValue(
            active_tasks=[streams.TargetTaskIds(subtopology_id="0", partitions=[1, 2])]
        ),
    ),
    (
        streams.StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        streams.StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=1,
            active_tasks=[streams.CurrentTaskIds(subtopology_id="0", partitions=[1], assignment_epochs=[2])],
            standby_tasks_pending_revocation=[streams.CurrentTaskIds(subtopology_id="1", partitions=[3])],
        ),
    ),
    (
        streams.StreamsGroupTopologyKey(group_id="g"),
        streams.StreamsGroupTopologyValue(
            epoch=1,
            subtopologies=[
                streams.Subtopology(
                    subtopology_id="0",
                    source_topics=["t"],
                    state_changelog_topics=[
                        streams.TopicInfo(name="c", topic_configs=[streams.KeyValue(key="k", value="v")])
                    ],
                    copartition_groups=[streams.CopartitionGroup(source_topics=[0])],
                )
            ],
        ),
    ),
]


@pytest.mark.parametrize(("key", "value"), RECORDS, ids=lambda r: type(r).__name__)
def test_round_trip(key: Struct, value: Struct) -> None:
    assert decode_record(*encode_record(key, value)) == (key, value)
    assert decode_record(*encode_record(key, None)) == (key, None)


def test_an_offset_commit_has_the_bytes_that_kafka_writes() -> None:
    value = records.OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)

    key_bytes, value_bytes = encode_record(OFFSET_KEY, value)

    assert key_bytes == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert value_bytes == bytes.fromhex("0004 0000000000000005 00000002 02 6d 0000000000000009 00")


def test_older_versions_are_read() -> None:
    """Version 1 is also written for a client that sets a retention."""
    value = records.OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, expire_timestamp=11)

    key_bytes, value_bytes = encode_record(OFFSET_KEY, value, 1)

    assert value_bytes == bytes.fromhex("0001 0000000000000005 0001 6d 0000000000000009 000000000000000b")
    assert decode_record(key_bytes, value_bytes) == (OFFSET_KEY, value)


def test_an_unknown_type_is_skipped() -> None:
    assert decode_record(b"\x00\x63anything", b"") is None


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x05", b"\xff\xff", b"\x00\x04\x00"])
def test_malformed_values_are_reported(value: bytes) -> None:
    key_bytes, _ = encode_record(OFFSET_KEY, None)

    with pytest.raises(ProtocolError):
        decode_record(key_bytes, value)


def test_a_key_without_a_type_is_malformed() -> None:
    with pytest.raises(ProtocolError):
        decode_record(b"\x00", None)
