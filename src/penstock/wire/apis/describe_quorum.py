"""DescribeQuorum, versions 0 to 2."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.endpoints import Endpoint
from penstock.wire.schema import Struct, array, int16, int32, int64, nullable_string, string, uuid


class DescribeQuorumRequestPartition(Struct):
    partition_index: int = int32()


class DescribeQuorumRequestTopic(Struct):
    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartition] = array(DescribeQuorumRequestPartition)


class DescribeQuorumRequest(Struct):
    topics: list[DescribeQuorumRequestTopic] = array(DescribeQuorumRequestTopic)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class DescribeQuorumResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string("2+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class DescribeQuorumResponseTopic(Struct):
    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartition] = array(DescribeQuorumResponsePartition)


class QuorumNode(Struct):
    node_id: int = int32()
    listeners: list[Endpoint] = array(Endpoint)


class DescribeQuorumResponse(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string("2+")
    topics: list[DescribeQuorumResponseTopic] = array(DescribeQuorumResponseTopic)
    nodes: list[QuorumNode] = array(QuorumNode, "2+")


DESCRIBE_QUORUM = Api(
    55,
    "DescribeQuorum",
    (0, 2),
    flexible_from=0,
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
)
