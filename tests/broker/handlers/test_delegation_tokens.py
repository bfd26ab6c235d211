"""Delegation tokens: the answers of a Kafka cluster that has not enabled them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.base.context import Context
from penstock.broker.handlers.delegation_tokens import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from penstock.model.errors import ErrorCode
from penstock.security.principal import ANONYMOUS, Principal
from penstock.wire.apis.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.apis.describe_delegation_token import DescribeDelegationTokenRequest
from penstock.wire.apis.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.apis.renew_delegation_token import RenewDelegationTokenRequest

ALICE = Principal("User", "alice")


def context(principal: Principal) -> Context:
    return cast(Context, SimpleNamespace(principal=principal))


@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        (create_delegation_token, CreateDelegationTokenRequest()),
        (renew_delegation_token, RenewDelegationTokenRequest(hmac=b"x")),
        (expire_delegation_token, ExpireDelegationTokenRequest(hmac=b"x")),
        (describe_delegation_token, DescribeDelegationTokenRequest(owners=None)),
    ],
)
def test_tokens_are_not_enabled(handler: Any, request_: Any) -> None:
    assert handler(context(ALICE), request_).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert handler(context(ANONYMOUS), request_).error_code == refused


def test_a_creation_names_owner_and_requester() -> None:
    own = create_delegation_token(context(ALICE), CreateDelegationTokenRequest())
    assert (own.principal_name, own.token_requester_principal_name) == ("alice", "alice")
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    other = create_delegation_token(context(ALICE), request)
    assert (other.principal_name, other.token_requester_principal_name) == ("bob", "alice")
