"""Forwards requests that only the active controller can execute (KIP-590).

A client may send such a request to any broker. The broker puts it into an Envelope, together with the
client's principal and address, and answers with the controller's response. After a success the broker waits a
moment until its own metadata has the change, so that the client finds it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Any, Final, NamedTuple

from penstock.broker.base.context import AsyncHandler, Context
from penstock.broker.base.metrics import ApiStats, Metrics
from penstock.broker.node.controller import NotController
from penstock.broker.node.controller_client import ControllerClient, ControllerUnavailable
from penstock.broker.node.metadata_loader import MetadataLoader
from penstock.metadata.topics import NewTopic
from penstock.model.errors import ApiError, ErrorCode, ProtocolError, TopicAlreadyExists
from penstock.security.principal import Principal, Session, canonical_address
from penstock.wire.api import Api
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.apis.describe_quorum import DESCRIBE_QUORUM
from penstock.wire.apis.envelope import ENVELOPE, EnvelopeRequest, EnvelopeResponse
from penstock.wire.apis.list_partition_reassignments import LIST_PARTITION_REASSIGNMENTS
from penstock.wire.messages import decode_request_header, decode_response, encode_request, encode_response
from penstock.wire.principals import decode_principal, encode_principal

__all__ = ["Caller", "Forwarding"]

_DEFAULT_TIMEOUT_S: Final = 30.0
#: how long a request waits for the creation of a topic: a retry is cheap, and later requests of the client
#: wait behind this one
_CREATION_S: Final = 10.0
#: how long a response may wait until this broker has applied the change
_CATCH_UP_S: Final = 0.5
#: APIs that do not change the metadata
_READS: Final = (DESCRIBE_QUORUM, LIST_PARTITION_REASSIGNMENTS)
_SIZE: Final = 4
_IPV4_BYTES: Final = 4


class Caller(NamedTuple):
    """The client of a forwarded request: the fields of an envelope beside the request."""

    #: None for a request of the broker itself
    principal: Principal | None
    #: the client's address
    host: str
    client_id: str | None
    #: the groups of the client's token, which are roles
    groups: tuple[str, ...] = ()


_THE_BROKER: Final = Caller(None, "127.0.0.1", None)


class _ForwardedContext(Context):
    """The context of a request in an envelope: the client's, not that of the broker that forwarded it."""

    __slots__ = ("_session", "is_forwarded")

    def __init__(self, outer: Context, caller: Caller, version: int, stats: ApiStats) -> None:
        super().__init__(outer.tasks, outer.connection, caller.client_id, version, stats)
        self._session = outer.session
        self.is_forwarded = caller.principal is not None
        if caller.principal is not None:
            self._session = Session(caller.principal, outer.listener.name, caller.host, groups=caller.groups)

    @property
    def session(self) -> Session:
        return self._session


class Forwarding:
    """Sends requests to the active controller, and executes those that other brokers forward to this one."""

    def __init__(self, controller: ControllerClient, loader: MetadataLoader, metrics: Metrics) -> None:
        self._controller = controller
        self._loader = loader
        self._metrics = metrics

    def forwarded(
        self, api: Api[Any, Any], handler: AsyncHandler, stays: Callable[[Any], bool] = lambda request: False
    ) -> AsyncHandler:
        """A handler that forwards, unless this node is the active controller or `stays` returns true."""

        async def serve(context: Context, request: Any) -> Any:
            if stays(request):
                return await handler(context, request)

            async def here() -> Any:
                return await handler(context, request)

            try:
                session = context.session
                caller = Caller(session.principal, session.host, context.client_id, session.groups)
                return await self.forward(api, context.version, request, here, caller)
            except ControllerUnavailable as e:
                # Not every response has an error code. Clients retry after a closed connection.
                raise ProtocolError(str(e)) from e

        return serve

    async def forward(
        self,
        api: Api[Any, Any],
        version: int,
        request: Any,
        here: Callable[[], Awaitable[Any]],
        caller: Caller,
    ) -> Any:
        """The active controller's response, from `here` if this node is the active controller.

        Raises ControllerUnavailable if there is no active controller.
        """
        controller = self._controller

        async def attempt(left_s: float) -> Any:
            if controller.is_here:
                try:
                    return await here()
                except NotController:
                    return None
            envelope = _envelope(api, version, request, caller)
            answer = await controller.send_to_leader_once(ENVELOPE, envelope, left_s, "forwarding")
            if answer is None or answer.response_data is None:
                return None
            response = decode_response(api, version, memoryview(answer.response_data))
            if _has_changed_metadata(api, request, response):
                await self._catch_up(answer.metadata_end)
            return response

        timeout_s = getattr(request, "timeout_ms", 0) / 1000 or _DEFAULT_TIMEOUT_S
        return await controller.until_answered(attempt, timeout_s)

    async def own(self, api: Api[Any, Any], request: Any, here: Callable[[], Awaitable[Any]]) -> Any:
        """The active controller's response to a request of this broker itself; ApiError if there is none."""
        try:
            return await self.forward(api, api.max_version, request, here, _THE_BROKER)
        except ControllerUnavailable as e:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, str(e)) from e

    async def create_topic(self, topic: NewTopic, here: Callable[[], Awaitable[object]]) -> None:
        """Create a topic that this broker needs on the active controller; ApiError if that fails."""

        async def as_response() -> CreateTopicsResponse:
            await here()
            return CreateTopicsResponse()

        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted])
        try:
            async with asyncio.timeout(_CREATION_S):
                response = await self.forward(
                    CREATE_TOPICS, CREATE_TOPICS.max_version, request, as_response, _THE_BROKER
                )
        except (ControllerUnavailable, TimeoutError) as e:
            reason = str(e) or f"no controller has responded in {_CREATION_S:g} s"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, reason) from e
        for result in response.topics:
            if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                raise TopicAlreadyExists(result.error_message or "")
            if result.error_code:
                raise ApiError(ErrorCode(result.error_code), result.error_message or "")

    async def _catch_up(self, metadata_end: int) -> None:
        """Wait until this broker has applied all metadata that the controller had when it responded."""
        try:
            async with asyncio.timeout(_CATCH_UP_S):
                await self._loader.wait_for(metadata_end)
        except TimeoutError:
            return

    def envelopes(self, handlers: Mapping[Api[Any, Any], AsyncHandler]) -> AsyncHandler:
        """The handler of Envelope, which passes the request inside to one of `handlers`."""
        carried = {api.key: (api, handler) for api, handler in handlers.items()}

        async def serve(context: Context, envelope: EnvelopeRequest) -> EnvelopeResponse:
            return await self._execute(context, envelope, carried)

        return serve

    async def _execute(
        self,
        context: Context,
        envelope: EnvelopeRequest,
        handlers: Mapping[int, tuple[Api[Any, Any], AsyncHandler]],
    ) -> EnvelopeResponse:
        frame = memoryview(envelope.request_data)
        header = decode_request_header(frame)
        caller = _caller_in(envelope, header.client_id)
        api, handler = handlers.get(header.api_key, (None, None))
        if api is None or handler is None or not api.supports(header.api_version):
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        request = api.request_decoder(header.api_version)(frame, header.body_offset)
        stats = self._metrics.api(api.name)
        inner = _ForwardedContext(context, caller, header.api_version, stats)
        try:
            response = await handler(inner, request)
        except NotController:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        finally:
            if inner.denials is not None:
                inner.denials.end()
        parts = encode_response(api, header.api_version, header.correlation_id, response)
        return EnvelopeResponse(
            response_data=b"".join(parts)[_SIZE:],  # type: ignore[arg-type]
            metadata_end=self._loader.applied,
        )


def _envelope(api: Api[Any, Any], version: int, request: Any, caller: Caller) -> EnvelopeRequest:
    frame = b"".join(encode_request(api, version, 0, caller.client_id, request))  # type: ignore[arg-type]
    return EnvelopeRequest(
        request_data=frame[_SIZE:],
        request_principal=(
            None if caller.principal is None else encode_principal(caller.principal, caller.groups)
        ),
        client_host_address=_packed(caller.host),
    )


def _caller_in(envelope: EnvelopeRequest, client_id: str | None) -> Caller:
    """The client that sent the request to the broker that forwarded it."""
    principal: Principal | None = None
    groups: tuple[str, ...] = ()
    if envelope.request_principal is not None:
        principal, groups = decode_principal(envelope.request_principal)
    try:
        address = bytes(envelope.client_host_address)
        host = inet_ntop(AF_INET if len(address) == _IPV4_BYTES else AF_INET6, address)
    except ValueError as e:
        raise ProtocolError("the envelope has no valid client address") from e
    return Caller(principal, canonical_address(host), client_id, groups)


def _packed(host: str) -> bytes:
    """An address as bytes; 0.0.0.0 if the transport does not provide one."""
    try:
        return inet_pton(AF_INET6 if ":" in host else AF_INET, host)
    except OSError:
        return bytes(_IPV4_BYTES)


def _has_changed_metadata(api: Api[Any, Any], request: Any, response: Any) -> bool:
    """Whether a part of the request has succeeded and has changed the metadata."""
    if api in _READS or getattr(request, "validate_only", False):
        return False
    for name in ("topics", "results", "responses", "filter_results", "entries"):
        parts = getattr(response, name, None)
        if parts:
            return any(getattr(part, "error_code", ErrorCode.NONE) == ErrorCode.NONE for part in parts)
    return bool(getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NONE)
