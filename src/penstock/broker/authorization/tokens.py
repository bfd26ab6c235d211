"""Checks of delegation tokens (KIP-373). The handler of DescribeDelegationToken checks each token itself."""

from __future__ import annotations

from typing import Any

from penstock.broker.authorization.forms import Environment, refusing
from penstock.broker.base.context import Context
from penstock.metadata.delegation_tokens import owner_of, refused_creation
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api

__all__ = ["check_create"]


def _create(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    """Every principal may create tokens of its own."""
    owner = owner_of(request, context.principal)
    if owner == context.principal or environment.access.allows(
        context, Operation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        return None
    return refused_creation(request, context.principal, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


check_create = refusing(_create)
