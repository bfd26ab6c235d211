"""Vote, versions 0 to 2: 1 names voters by directory (KIP-853), 2 has pre-votes (KIP-996)."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.endpoints import NodeEndpoint
from penstock.wire.schema import (
    OWN_TAGS,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_string,
    string,
    uuid,
)


class VoteRequestPartition(Struct):
    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("1+")
    voter_directory_id: bytes = uuid("1+")
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+")


class VoteRequestTopic(Struct):
    topic_name: str = string()
    partitions: list[VoteRequestPartition] = array(VoteRequestPartition)


class VoteRequest(Struct):
    cluster_id: str | None = nullable_string()
    voter_id: int = int32("1+", default=-1)
    topics: list[VoteRequestTopic] = array(VoteRequestTopic)


class VoteResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()
    #: not granted, but counts in an election that all voters agree in
    conditional: bool = boolean(tag=OWN_TAGS)


class VoteResponseTopic(Struct):
    topic_name: str = string()
    partitions: list[VoteResponsePartition] = array(VoteResponsePartition)


class VoteResponse(Struct):
    error_code: int = int16()
    topics: list[VoteResponseTopic] = array(VoteResponseTopic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


VOTE = Api(52, "Vote", (0, 2), flexible_from=0, request=VoteRequest, response=VoteResponse)
