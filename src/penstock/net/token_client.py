"""Creates, renews, ends and lists delegation tokens (KIP-48), for any client that can send a request."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from penstock.net.access_client import AccessPort
from penstock.security.principal import parse_principal
from penstock.wire.apis.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreatableRenewer,
    CreateDelegationTokenRequest,
)
from penstock.wire.apis.describe_delegation_token import (
    DESCRIBE_DELEGATION_TOKEN,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from penstock.wire.apis.expire_delegation_token import EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest
from penstock.wire.apis.renew_delegation_token import RENEW_DELEGATION_TOKEN, RenewDelegationTokenRequest

__all__ = ["create_token", "expire_token", "list_tokens", "renew_token"]


async def create_token(
    cluster: AccessPort, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int
) -> dict[str, Any]:
    """A new token; -1 leaves its lifetime to the brokers. `hmac` is the secret part, in base64."""
    request = CreateDelegationTokenRequest(
        renewers=[
            CreatableRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(parse_principal, renewers)
        ],
        max_lifetime_ms=max_lifetime_ms,
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = parse_principal(owner)
    made = await cluster.send(CREATE_DELEGATION_TOKEN, request, changes=True)
    cluster.check(made.error_code, None, "the delegation token is not created")
    return {
        "token": made.token_id,
        "owner": f"{made.principal_type}:{made.principal_name}",
        "requester": f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
        "renewers": list(renewers),
        "issued_ms": made.issue_timestamp_ms,
        "expires_ms": made.expiry_timestamp_ms,
        "max_ms": made.max_timestamp_ms,
        "hmac": b64encode(made.hmac).decode(),
    }


async def renew_token(cluster: AccessPort, token_id: str, hmac: bytes, period_ms: int) -> int:
    """When the token ends now; -1 leaves the period to the brokers."""
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    renewed = await cluster.send(RENEW_DELEGATION_TOKEN, request, changes=True)
    cluster.check(renewed.error_code, None, f"the delegation token {token_id} is not renewed")
    return int(renewed.expiry_timestamp_ms)


async def expire_token(cluster: AccessPort, token_id: str, hmac: bytes, period_ms: int) -> int:
    """When the token ends now; a negative period removes it at once."""
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    ended = await cluster.send(EXPIRE_DELEGATION_TOKEN, request, changes=True)
    cluster.check(ended.error_code, None, f"the delegation token {token_id} is not changed")
    return int(ended.expiry_timestamp_ms)


async def list_tokens(cluster: AccessPort, owners: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The tokens of some owners, or all of them, as far as the client may see them."""
    named = [
        DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
        for kind, name in map(parse_principal, owners)
    ]
    request = DescribeDelegationTokenRequest(owners=named or None)
    response = await cluster.send(DESCRIBE_DELEGATION_TOKEN, request)
    cluster.check(response.error_code, None, "delegation tokens cannot be listed")
    return [
        {
            "token": token.token_id,
            "owner": f"{token.principal_type}:{token.principal_name}",
            "requester": f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            "renewers": [f"{each.principal_type}:{each.principal_name}" for each in token.renewers],
            "issued_ms": token.issue_timestamp,
            "expires_ms": token.expiry_timestamp,
            "max_ms": token.max_timestamp,
            "hmac": b64encode(token.hmac).decode(),
        }
        for token in response.tokens
    ]
