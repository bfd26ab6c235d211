"""Produce, versions 3 to 13."""

from __future__ import annotations

from typing import Final

from penstock.wire.api import Api
from penstock.wire.schema import (
    OWN_TAGS,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_string,
    record_batches,
    string,
    tagged_struct,
    uuid,
)


class PartitionProduceData(Struct):
    index: int = int32()
    records: memoryview | None = record_batches()


class TopicProduceData(Struct):
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


#: As `acks`: the batches have the offsets at which the leader appends them. Other implementations refuse it.
RESTORED_ACKS: Final = -2


class RestoredPart(Struct):
    """Where the batches of a restore belong, in a topic with `penstock.restoring`."""

    #: the end offset of the log before them
    next_offset: int = int64()
    #: whether an empty log starts there
    is_first: bool = boolean()
    #: the log start, with the last request; -1 before
    log_start_offset: int = int64(default=-1)


class ProduceRequest(Struct):
    transactional_id: str | None = nullable_string()
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)
    #: with RESTORED_ACKS, for one partition
    restored: RestoredPart | None = tagged_struct(RestoredPart, "9+", tag=OWN_TAGS)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32()
    batch_index_error_message: str | None = nullable_string()


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = nullable_string("8+")
    current_leader: LeaderIdAndEpoch | None = tagged_struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string()


class ProduceResponse(Struct):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)


PRODUCE = Api(
    0, "Produce", (3, 13), flexible_from=9, request=ProduceRequest, response=ProduceResponse, advertised_min=0
)
