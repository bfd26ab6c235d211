"""The dispatcher: contexts, the tasks of its requests, and frames that it hands to metering."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock.broker.base.context import Context, Handler
from penstock.broker.base.metrics import Metrics
from penstock.broker.request.dispatch import Dispatcher
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Answer
from penstock.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.messages import decode_request_header, encode_request


def _dispatcher(handler: Handler) -> Dispatcher:
    dispatcher = Dispatcher({DESCRIBE_LOG_DIRS: handler}, {}, Metrics(), lambda connection: None)
    # On a busy machine any request is a long one.
    dispatcher.disable_turns()
    return dispatcher


def _frame() -> memoryview:
    parts = encode_request(DESCRIBE_LOG_DIRS, 4, 7, "test", DescribeLogDirsRequest(topics=None))
    return memoryview(b"".join(map(bytes, parts))[4:])  # type: ignore[arg-type]


def _connection() -> Any:
    return SimpleNamespace(memo=None, peer="127.0.0.1:1", listener=None, rest=lambda: None)


def _attributes(context: Context) -> dict[str, object]:
    return {name: getattr(context, name) for name in Context.__slots__ if hasattr(context, name)}


def test_contexts_of_the_dispatcher_are_complete() -> None:
    """The dispatcher sets the attributes itself, because the call would cost time in each request."""
    found: list[Context] = []

    def handler(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        found.append(context)
        return DescribeLogDirsResponse()

    dispatcher, connection = _dispatcher(handler), _connection()
    dispatcher.serve(connection, _frame())
    route = dispatcher.route_of(decode_request_header(_frame()))
    assert route is not None
    expected = Context(dispatcher, connection, "test", 4, route.stats)
    assert [_attributes(context) for context in found] == [_attributes(expected)]
    assert type(found[0]) is Context


def test_a_frame_that_metering_gives_back_is_served_and_the_next_is_metered() -> None:
    handled: list[int] = []
    metered: list[int] = []

    def handler(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        handled.append(len(metered))
        if len(handled) == 3:
            dispatcher.meter(None)
        return DescribeLogDirsResponse()

    def metering(connection: Connection, frame: memoryview) -> Answer:
        metered.append(len(handled))
        return dispatcher.serve_plain(connection, frame)

    dispatcher, connection = _dispatcher(handler), _connection()
    dispatcher.meter(metering)
    for _ in range(5):
        assert dispatcher.serve(connection, _frame()) is not None
    # The third request removes the quotas: those behind it are not metered.
    assert (metered, handled) == ([0, 1, 2], [1, 2, 3, 3, 3])


def test_a_dispatcher_that_stops_ends_its_own_requests_only() -> None:
    """A broker that stops ends clients' requests before those of other nodes."""

    async def main() -> None:
        gate = asyncio.Event()

        async def wait() -> DescribeLogDirsResponse:
            await gate.wait()
            return DescribeLogDirsResponse()

        def handler(context: Context, request: DescribeLogDirsRequest) -> Deferred[DescribeLogDirsResponse]:
            return context.spawn(wait())

        connection = _connection()
        clients, internal = _dispatcher(handler), _dispatcher(handler)
        of_client = clients.serve(connection, _frame())
        of_node = internal.serve(connection, _frame())
        await asyncio.sleep(0)
        await clients.stop()
        gate.set()
        await asyncio.sleep(0)
        assert isinstance(of_client, Deferred) and not of_client.done
        assert isinstance(of_node, Deferred) and of_node.done
        await internal.stop()

    asyncio.run(main())
