"""ShareAcknowledge, versions 1 to 2. Version 2 has the renewal of acquisition locks."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable_string,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8())


class AcknowledgePartition(Struct):
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class AcknowledgeTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


class ShareAcknowledgeRequest(Struct):
    group_id: str | None = nullable_string()
    member_id: str | None = nullable_string()
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string()


class ShareAcknowledgeResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)


SHARE_ACKNOWLEDGE = Api(
    79,
    "ShareAcknowledge",
    (1, 2),
    flexible_from=0,
    request=ShareAcknowledgeRequest,
    response=ShareAcknowledgeResponse,
)
