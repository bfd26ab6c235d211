"""BeginQuorumEpoch, versions 0 and 1: a new Raft leader makes itself known."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.endpoints import Endpoint, NodeEndpoint
from penstock.wire.schema import Struct, array, int16, int32, nullable_string, string, uuid


class BeginQuorumEpochRequestPartition(Struct):
    partition_index: int = int32()
    voter_directory_id: bytes = uuid("1+")
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochRequestTopic(Struct):
    topic_name: str = string()
    partitions: list[BeginQuorumEpochRequestPartition] = array(BeginQuorumEpochRequestPartition)


class BeginQuorumEpochRequest(Struct):
    cluster_id: str | None = nullable_string()
    voter_id: int = int32("1+", default=-1)
    topics: list[BeginQuorumEpochRequestTopic] = array(BeginQuorumEpochRequestTopic)
    leader_endpoints: list[Endpoint] = array(Endpoint, "1+")


class BeginQuorumEpochResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochResponseTopic(Struct):
    topic_name: str = string()
    partitions: list[BeginQuorumEpochResponsePartition] = array(BeginQuorumEpochResponsePartition)


class BeginQuorumEpochResponse(Struct):
    error_code: int = int16()
    topics: list[BeginQuorumEpochResponseTopic] = array(BeginQuorumEpochResponseTopic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


BEGIN_QUORUM_EPOCH = Api(
    53,
    "BeginQuorumEpoch",
    (0, 1),
    flexible_from=1,
    request=BeginQuorumEpochRequest,
    response=BeginQuorumEpochResponse,
)
