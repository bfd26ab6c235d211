"""DescribeDelegationToken, versions 1 to 3."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, byte_string, int16, int32, int64, nullable_array, string


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Struct):
    owners: list[DescribeDelegationTokenOwner] | None = nullable_array(DescribeDelegationTokenOwner)


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Struct):
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = byte_string()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Struct):
    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()


DESCRIBE_DELEGATION_TOKEN = Api(
    41,
    "DescribeDelegationToken",
    (1, 3),
    flexible_from=2,
    request=DescribeDelegationTokenRequest,
    response=DescribeDelegationTokenResponse,
)
