"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken.

Delegation tokens are not supported. The answers are those of a Kafka cluster that has not enabled them, so
that its tools say why.
"""

from __future__ import annotations

from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.security.principal import ANONYMOUS
from penstock.wire.apis.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.apis.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.wire.apis.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.wire.apis.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

__all__ = [
    "create_delegation_token",
    "describe_delegation_token",
    "expire_delegation_token",
    "renew_delegation_token",
]


def create_delegation_token(
    context: Context, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = context.principal
    return CreateDelegationTokenResponse(
        error_code=_error(context),
        principal_type=request.owner_principal_type or requester.type,
        principal_name=request.owner_principal_name or requester.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def renew_delegation_token(
    context: Context, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=_error(context), expiry_timestamp_ms=-1)


def expire_delegation_token(
    context: Context, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=_error(context), expiry_timestamp_ms=-1)


def describe_delegation_token(
    context: Context, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=_error(context))


def _error(context: Context) -> int:
    """A client that is not authenticated may not request tokens, whether there are tokens or not."""
    if context.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
