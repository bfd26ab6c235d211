"""AddRaftVoter, versions 0 and 1 (KIP-853)."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.endpoints import Endpoint
from penstock.wire.schema import Struct, array, boolean, int16, int32, nullable_string, uuid


class AddRaftVoterRequest(Struct):
    cluster_id: str | None = nullable_string()
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Endpoint] = array(Endpoint)
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


ADD_RAFT_VOTER = Api(
    80, "AddRaftVoter", (0, 1), flexible_from=0, request=AddRaftVoterRequest, response=AddRaftVoterResponse
)
