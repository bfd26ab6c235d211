"""EndQuorumEpoch, versions 0 and 1: a Raft leader resigns and names its preferred successors."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.endpoints import Endpoint, NodeEndpoint
from penstock.wire.schema import Struct, array, int16, int32, nullable_string, string, uuid


class PreferredCandidate(Struct):
    candidate_id: int = int32()
    candidate_directory_id: bytes = uuid()


class EndQuorumEpochRequestPartition(Struct):
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array(int32(), "0")
    preferred_candidates: list[PreferredCandidate] = array(PreferredCandidate, "1+")


class EndQuorumEpochRequestTopic(Struct):
    topic_name: str = string()
    partitions: list[EndQuorumEpochRequestPartition] = array(EndQuorumEpochRequestPartition)


class EndQuorumEpochRequest(Struct):
    cluster_id: str | None = nullable_string()
    topics: list[EndQuorumEpochRequestTopic] = array(EndQuorumEpochRequestTopic)
    leader_endpoints: list[Endpoint] = array(Endpoint, "1+")


class EndQuorumEpochResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class EndQuorumEpochResponseTopic(Struct):
    topic_name: str = string()
    partitions: list[EndQuorumEpochResponsePartition] = array(EndQuorumEpochResponsePartition)


class EndQuorumEpochResponse(Struct):
    error_code: int = int16()
    topics: list[EndQuorumEpochResponseTopic] = array(EndQuorumEpochResponseTopic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


END_QUORUM_EPOCH = Api(
    54,
    "EndQuorumEpoch",
    (0, 1),
    flexible_from=1,
    request=EndQuorumEpochRequest,
    response=EndQuorumEpochResponse,
)
