"""Checks of FindCoordinator."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.authorization.forms import REASONS, Environment, Merge, refusing, splitting
from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.wire.api import Api
from penstock.wire.apis.find_coordinator import Coordinator, FindCoordinatorResponse

__all__ = ["check_find_coordinator"]

_GROUP, _TXN = ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_NO_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NO_TXN: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NO_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_BATCHED: Final = 4


def _find_coordinator_error(environment: Environment, context: Context, key_type: int, key: str) -> ErrorCode:
    access = environment.access
    kinds = {0: (_GROUP, _NO_GROUP), 1: (_TXN, _NO_TXN)}
    if key_type not in kinds:
        allowed = access.allows_on_cluster(context, Operation.CLUSTER_ACTION)
        return ErrorCode.NONE if allowed else _NO_CLUSTER
    kind, code = kinds[key_type]
    return ErrorCode.NONE if access.allows(context, Operation.DESCRIBE, kind, key) else code


def _refused_coordinator(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
    """The versions with one key. The handler must not run: it creates the internal topic if it is missing."""
    if context.version >= _BATCHED:
        return None
    code = _find_coordinator_error(environment, context, request.key_type, request.key)
    if not code:
        return None
    return FindCoordinatorResponse(error_code=code, error_message=REASONS[code], node_id=-1, port=-1)


def _find_coordinators(environment: Environment, context: Context, request: Any) -> Merge | None:
    if context.version < _BATCHED:
        return None
    keys = request.coordinator_keys
    denied = {
        key: code
        for key in keys
        if (code := _find_coordinator_error(environment, context, request.key_type, key))
    }
    if not denied:
        return None
    request.coordinator_keys = [key for key in keys if key not in denied]

    def merge(response: Any) -> Any:
        response.coordinators += [
            Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=REASONS[code])
            for key, code in denied.items()
        ]
        return response

    return merge


def check_find_coordinator(environment: Environment, api: Api[Any, Any], handler: Any) -> Any:
    inner = splitting(_find_coordinators)(environment, api, handler)
    return refusing(_refused_coordinator)(environment, api, inner)
