"""The forms of a check: of a whole request, of its parts, and of its response.

A `Check` wraps a handler. The wrapper is a coroutine function if the handler is one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from penstock.broker.base.access import Access
from penstock.broker.base.awaiting import awaited
from penstock.broker.base.context import Context, Handler
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.net.deferred import Deferred
from penstock.net.listener import Listener
from penstock.security.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.wire.api import Api

__all__ = ["Check", "Environment", "Merge", "open_to_all", "refusing", "splitting"]

T = TypeVar("T")
#: makes the response of the whole request from the response of its allowed part; a generator if that is long
Merge: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Environment:
    """The parts of a broker that checks use."""

    access: Access
    image: ClusterImage
    #: whether Metadata requests create topics
    auto_creates: Callable[[], bool]
    #: the listener for other nodes, if there is one
    internal: Listener | None
    #: ends the share session of a group and a member without the right to read the group
    end_share_session: Callable[[Context, str, str], None]

    def split(
        self,
        context: Context,
        operation: Operation,
        kind: ResourceType,
        items: Iterable[T],
        name: Callable[[T], str],
    ) -> tuple[list[T], list[T]]:
        """(allowed, denied) items, by the names of their resources."""
        allowed: list[T] = []
        denied: list[T] = []
        for item in items:
            may = self.access.allows(context, operation, kind, name(item))
            (allowed if may else denied).append(item)
        return allowed, denied


#: wraps the handler of an API
Check: TypeAlias = Callable[[Environment, Api[Any, Any], Handler], Handler]


def open_to_all(environment: Environment, api: Api[Any, Any], handler: Handler) -> Handler:
    """For APIs that need no operation."""
    return handler


def refusing(refuse: Callable[[Environment, Api[Any, Any], Context, Any], Any]) -> Check:
    """A check of the whole request: `refuse` returns the response to a request that is denied, else None.

    A check that takes long, or a response that takes long to make, may be a generator of the same.
    """

    def check(environment: Environment, api: Api[Any, Any], handler: Handler) -> Handler:
        if inspect.iscoroutinefunction(handler):

            async def serve_later(context: Context, request: Any) -> Any:
                refused = refuse(environment, api, context, request)
                if isinstance(refused, Generator):
                    refused = await context.until_done(refused)
                return await handler(context, request) if refused is None else refused

            return serve_later

        def serve(context: Context, request: Any) -> Any:
            refused = refuse(environment, api, context, request)
            if isinstance(refused, Generator):
                refused = context.in_turns(refused)
                if isinstance(refused, Deferred):
                    return context.spawn(_refused_or_served(refused, context, request, handler))
            return handler(context, request) if refused is None else refused

        return serve

    return check


async def _refused_or_served(refused: Deferred[Any], context: Context, request: Any, handler: Handler) -> Any:
    response = refused.value if refused.done else await awaited(refused)
    if response is not None:
        return response
    response = handler(context, request)
    return await awaited(response) if isinstance(response, Deferred) else response


def splitting(split: Callable[[Environment, Context, Any], Merge | None]) -> Check:
    """A check of the parts of a request: `split` removes denied parts from the request.

    It returns the function that completes the response, or None if the response needs no change.
    """

    def check(environment: Environment, api: Api[Any, Any], handler: Handler) -> Handler:
        if inspect.iscoroutinefunction(handler):

            async def serve_later(context: Context, request: Any) -> Any:
                merge = split(environment, context, request)
                response = await handler(context, request)
                if merge is None:
                    return response
                merged = merge(response)
                return await context.until_done(merged) if isinstance(merged, Generator) else merged

            return serve_later

        def serve(context: Context, request: Any) -> Any:
            merge = split(environment, context, request)
            response = handler(context, request)
            return response if merge is None else _converted(context, response, merge)

        return serve

    return check


def _converted(context: Context, response: Any, merge: Merge) -> Any:
    if not isinstance(response, Deferred):
        return _merged(context, response, merge)
    if response.done:
        return _merged(context, response.value, merge)
    converted: Deferred[Any] = Deferred()
    converted.on_cancel = response.cancel

    def resolved(value: Any) -> None:
        merged = None if value is None else _merged(context, value, merge)
        if isinstance(merged, Deferred):
            merged.then(converted.resolve)
        else:
            converted.resolve(merged)

    response.then(resolved)
    return converted


def _merged(context: Context, response: Any, merge: Merge) -> Any:
    """The response of the whole request, or a Deferred of it if it takes long to make."""
    merged = merge(response)
    return context.in_turns(merged) if isinstance(merged, Generator) else merged


def refusal(api: Api[Any, Any], code: ErrorCode) -> Any:
    """The response with an error for the whole request."""
    response = api.response()
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = REASONS[code]
    return response


def on_cluster(*operations: Operation, refuse: Callable[..., Any] | None = None) -> Check:
    """A check of the whole request: one of the operations on the cluster."""

    def refused(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
        access = environment.access
        if any(access.allows_on_cluster(context, operation) for operation in operations):
            return None
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return refusal(api, code) if refuse is None else refuse(context, request, code)

    return refusing(refused)


def on_group(operation: Operation) -> Check:
    """A check of the whole request: an operation on its group."""

    def refused(environment: Environment, api: Api[Any, Any], context: Context, request: Any) -> Any:
        if environment.access.allows(context, operation, ResourceType.GROUP, request.group_id):
            return None
        return refusal(api, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    return refusing(refused)


REASONS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)
