"""FindCoordinator: the broker that leads the partition of an internal topic to which a key belongs.

A partition that this broker leads is in the image before its log is open. The coordinator would answer
NOT_COORDINATOR until then, so the request waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.base.logs import get_logger
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.metadata.image import ClusterImage
from penstock.metadata.levels import TRANSACTIONS, refused
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

__all__ = ["CoordinatorLookup"]

log = get_logger("groups")
#: types of coordinators
_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_SHARE_KEY: Final = 2
#: the first version with several keys
_BATCHED_KEYS_FROM: Final = 4
#: how long a request waits for the log of a partition that this broker leads
_OPEN_TIMEOUT_S: Final = 1.0
#: the first version with share coordinators, and the parts of their keys: group, topic id, partition
_SHARE_KEYS_FROM: Final = 6
_SHARE_KEY_PARTS: Final = 3


class CoordinatorLookup:
    """Answers FindCoordinator from the cluster image."""

    def __init__(
        self,
        groups: CoordinatorRuntime[Any],
        transactions: CoordinatorRuntime[Any],
        shares: CoordinatorRuntime[Any],
        are_shares_enabled: Callable[[], bool],
        image: ClusterImage,
    ) -> None:
        self._image = image
        self._are_shares_enabled = are_shares_enabled
        self._runtimes = {_GROUP_KEY: groups, _TRANSACTION_KEY: transactions, _SHARE_KEY: shares}

    def _runtime(self, context: Context, request: FindCoordinatorRequest) -> CoordinatorRuntime[Any] | None:
        if request.key_type == _SHARE_KEY:
            is_known = context.version >= _SHARE_KEYS_FROM and self._are_shares_enabled()
            if not is_known or not all(map(_is_share_key, _keys(context, request))):
                return None
        if request.key_type == _TRANSACTION_KEY and not TRANSACTIONS.is_on(self._image.features):
            return None
        return self._runtimes.get(request.key_type)

    def find_coordinator(self, context: Context, request: FindCoordinatorRequest) -> Any:
        """Answers at once, or creates the internal topic first if it does not exist yet."""
        runtime = self._runtime(context, request)
        if runtime is not None and not all(map(runtime.is_settled, _keys(context, request))):
            # The topic does not exist, or its partitions are not open yet: wait for the coordinator.
            return context.spawn(self._create_and_find(context, request, runtime))
        return self._found(context, request, runtime)

    async def _create_and_find(
        self, context: Context, request: FindCoordinatorRequest, runtime: CoordinatorRuntime[Any]
    ) -> FindCoordinatorResponse:
        keys = _keys(context, request)
        try:
            await runtime.topic.ensure()
        except ApiError as e:
            log.warning("no_coordinator", reason=str(e))
            return _not_found(context, request, e)
        await runtime.wait_until_settled(keys, _OPEN_TIMEOUT_S)
        return self._found(context, request, runtime)

    def _found(
        self, context: Context, request: FindCoordinatorRequest, runtime: CoordinatorRuntime[Any] | None
    ) -> FindCoordinatorResponse:
        listener = context.listener.name
        if runtime is None:
            found = [self._refused(request.key_type, key) for key in _keys(context, request)]
        else:
            found = [self._coordinator(listener, runtime, key) for key in _keys(context, request)]
        return _response(context, found)

    def _refused(self, key_type: int, key: str) -> Coordinator:
        """The answer for unknown types, for abilities that are off, and for invalid keys of share groups."""
        off = refused(self._image.features, TRANSACTIONS) if key_type == _TRANSACTION_KEY else None
        message = f"This broker has no coordinators of type {key_type}" if off is None else str(off)
        return Coordinator(
            key=key, node_id=-1, port=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=message
        )

    def _coordinator(self, listener: str, runtime: CoordinatorRuntime[Any], key: str) -> Coordinator:
        index = runtime.topic.partition_for(key)
        if index >= 0 and runtime.is_settled(key):
            leader = runtime.topic.leader_of(index)
            broker = self._image.brokers.get(leader)
            if broker is not None and not broker.fenced and listener in broker.endpoints:
                host, port = broker.endpoints[listener]
                return Coordinator(key=key, node_id=leader, host=host, port=port)
        return Coordinator(key=key, node_id=-1, port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _is_share_key(key: str) -> bool:
    parts = key.rsplit(":", _SHARE_KEY_PARTS - 1)
    return len(parts) == _SHARE_KEY_PARTS and bool(parts[0]) and parts[2].isdecimal()


def _keys(context: Context, request: FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys if context.version >= _BATCHED_KEYS_FROM else [request.key]


def _not_found(context: Context, request: FindCoordinatorRequest, error: ApiError) -> FindCoordinatorResponse:
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return _response(
        context,
        [
            Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=str(error))
            for key in _keys(context, request)
        ],
    )


def _response(context: Context, found: list[Coordinator]) -> FindCoordinatorResponse:
    if context.version >= _BATCHED_KEYS_FROM:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
