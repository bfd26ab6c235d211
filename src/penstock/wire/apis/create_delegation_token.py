"""CreateDelegationToken, versions 1 to 3."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, byte_string, int16, int32, int64, nullable_string, string


class CreatableRenewer(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Struct):
    owner_principal_type: str | None = nullable_string("3+")
    owner_principal_name: str | None = nullable_string("3+")
    renewers: list[CreatableRenewer] = array(CreatableRenewer)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Struct):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = byte_string()
    throttle_time_ms: int = int32()


CREATE_DELEGATION_TOKEN = Api(
    38,
    "CreateDelegationToken",
    (1, 3),
    flexible_from=2,
    request=CreateDelegationTokenRequest,
    response=CreateDelegationTokenResponse,
)
