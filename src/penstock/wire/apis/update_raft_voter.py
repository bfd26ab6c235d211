"""UpdateRaftVoter, version 0 (KIP-853)."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.endpoints import Endpoint, KRaftVersionFeature
from penstock.wire.schema import (
    Struct,
    array,
    int16,
    int32,
    nullable_string,
    string,
    struct,
    tagged_struct,
    uuid,
)


class UpdateRaftVoterRequest(Struct):
    cluster_id: str | None = nullable_string()
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Endpoint] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class CurrentLeader(Struct):
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader | None = tagged_struct(CurrentLeader, tag=0)


UPDATE_RAFT_VOTER = Api(
    82,
    "UpdateRaftVoter",
    (0, 0),
    flexible_from=0,
    request=UpdateRaftVoterRequest,
    response=UpdateRaftVoterResponse,
)
