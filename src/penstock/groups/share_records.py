"""The records of share groups in `__consumer_offsets` (KIP-932), as in Kafka."""

from __future__ import annotations

from penstock.wire.schema import Struct, array, int8, int32, int64, nullable_string, string, uuid

__all__ = [
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "ShareTopicInfo",
    "ShareTopicPartitions",
    "ShareTopicPartitionsInfo",
]


class ShareGroupMemberMetadataKey(Struct):
    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Struct):
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())


class ShareGroupMetadataKey(Struct):
    group_id: str = string()


class ShareGroupMetadataValue(Struct):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Struct):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class ShareTopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ShareGroupTargetAssignmentMemberKey(Struct):
    group_id: str = string()
    member_id: str = string()


class ShareGroupTargetAssignmentMemberValue(Struct):
    topic_partitions: list[ShareTopicPartitions] = array(ShareTopicPartitions)


class ShareGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = string()
    member_id: str = string()


class ShareGroupCurrentMemberAssignmentValue(Struct):
    """`state` is always 0, stable: members of a share group revoke nothing."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[ShareTopicPartitions] = array(ShareTopicPartitions)


class ShareTopicPartitionsInfo(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class ShareTopicInfo(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataKey(Struct):
    group_id: str = string()


class ShareGroupStatePartitionMetadataValue(Struct):
    """The share partitions of a group whose state is created, exists, or is deleted."""

    initializing_topics: list[ShareTopicPartitionsInfo] = array(ShareTopicPartitionsInfo)
    initialized_topics: list[ShareTopicPartitionsInfo] = array(ShareTopicPartitionsInfo)
    deleting_topics: list[ShareTopicInfo] = array(ShareTopicInfo)
