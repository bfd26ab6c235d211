"""RemoveRaftVoter, version 0 (KIP-853)."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, int16, int32, nullable_string, uuid


class RemoveRaftVoterRequest(Struct):
    cluster_id: str | None = nullable_string()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


class RemoveRaftVoterResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


REMOVE_RAFT_VOTER = Api(
    81,
    "RemoveRaftVoter",
    (0, 0),
    flexible_from=0,
    request=RemoveRaftVoterRequest,
    response=RemoveRaftVoterResponse,
)
