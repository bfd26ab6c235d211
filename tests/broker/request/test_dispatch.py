"""The dispatcher: the tasks of its requests are its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock.broker.base.context import Context
from penstock.broker.base.metrics import Metrics
from penstock.broker.request.dispatch import Dispatcher
from penstock.net.deferred import Deferred
from penstock.wire.apis.describe_log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.messages import encode_request


def test_a_dispatcher_that_stops_ends_its_own_requests_only() -> None:
    """A broker that stops ends clients' requests before those of other nodes."""

    async def main() -> None:
        gate = asyncio.Event()

        async def wait() -> DescribeLogDirsResponse:
            await gate.wait()
            return DescribeLogDirsResponse()

        def handler(context: Context, request: DescribeLogDirsRequest) -> Deferred[DescribeLogDirsResponse]:
            return context.spawn(wait())

        def new_dispatcher() -> Dispatcher:
            return Dispatcher({DESCRIBE_LOG_DIRS: handler}, {}, Metrics(), lambda connection: None)

        connection: Any = SimpleNamespace(memo=None, peer="127.0.0.1:1", listener=None, rest=lambda: None)
        clients, internal = new_dispatcher(), new_dispatcher()
        parts = encode_request(DESCRIBE_LOG_DIRS, 4, 7, "test", DescribeLogDirsRequest(topics=None))
        frame = b"".join(map(bytes, parts))[4:]  # type: ignore[arg-type]
        of_client = clients.serve(connection, memoryview(frame))
        of_node = internal.serve(connection, memoryview(frame))
        await asyncio.sleep(0)
        await clients.stop()
        gate.set()
        await asyncio.sleep(0)
        assert isinstance(of_client, Deferred) and not of_client.done
        assert isinstance(of_node, Deferred) and of_node.done
        await internal.stop()

    asyncio.run(main())
