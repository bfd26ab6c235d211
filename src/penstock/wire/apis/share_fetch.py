"""ShareFetch, versions 1 to 2. Version 2 has the acquire mode and the renewal of acquisition locks."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.share_acknowledge import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from penstock.wire.schema import (
    Records,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable_string,
    struct,
    unaligned_batches,
    uuid,
)


class FetchPartition(Struct):
    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class FetchTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class ShareFetchRequest(Struct):
    group_id: str | None = nullable_string()
    member_id: str | None = nullable_string()
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8("2+")
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class AcquiredRecords(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = nullable_string()
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: Records = unaligned_batches()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ShareFetchResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)


SHARE_FETCH = Api(
    78,
    "ShareFetch",
    (1, 2),
    flexible_from=0,
    request=ShareFetchRequest,
    response=ShareFetchResponse,
)
