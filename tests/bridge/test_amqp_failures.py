"""Queues of AMQP when the broker cancels a consumer or refuses a message, with a client library in memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.bridge.amqp_queues import AmqpSource, AmqpTarget
from penstock.bridge.copying import Copier, CopySettings
from penstock.bridge.errors import BridgeError, ConnectionLost
from penstock.bridge.mapping import KeyRule
from tests.bridge.fakes import FakeSource, message

QUICK = CopySettings(exit_at_end=True, backoff_s=0.0, poll_s=0.001, in_flight=10)


class AMQPError(Exception): ...


class NotFound(AMQPError): ...


class PreconditionFailed(AMQPError): ...


class AccessRefused(AMQPError): ...


class Library:
    """The calls of aio-pika that the bridge makes. `answer` raises what a publish of a body fails with."""

    def __init__(self, answer: Callable[[bytes], None] = lambda body: None) -> None:
        self.answer = answer
        self.consumers: dict[str, Any] = {}
        self.missing: NotFound | None = None
        self.stored: list[bytes] = []
        #: bodies whose confirms are pending on the channel
        self.pending: list[asyncio.Future[None]] = []
        self.connections = 0

    async def connect(self, url: str, **_: object) -> Any:
        self.connections += 1
        return Connection(self)


class Connection:
    is_closed = False

    def __init__(self, library: Library) -> None:
        self._library = library
        self.close_callbacks: set[Any] = set()

    async def channel(self, **_: object) -> Channel:
        return Channel(self._library)

    async def close(self) -> None:
        self.is_closed = True


class Channel:
    """Closes with the error of a refused message, which all pending publishes get."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.is_closed = False
        self.close_callbacks: set[Any] = set()
        self.default_exchange = self

    async def set_qos(self, prefetch_count: int) -> None: ...

    async def get_underlay_channel(self) -> Any:
        return self._library

    async def declare_queue(self, name: str, passive: bool) -> Any:
        if self._library.missing is not None:
            raise self._library.missing
        return self

    async def consume(self, callback: Any) -> str:
        self._library.consumers["tag"] = callback
        return "tag"

    async def publish(self, outgoing: Any, queue: str, **_: object) -> None:
        if self.is_closed:
            raise RuntimeError("channel closed")
        confirm = asyncio.get_running_loop().create_future()
        pending = self._library.pending
        pending.append(confirm)
        try:
            # All messages of a pass are in flight before the broker answers the first one.
            await asyncio.sleep(0)
            self._library.answer(outgoing.body)
        except AMQPError as error:
            self.is_closed = True
            for other in pending:
                if not other.done():
                    other.set_exception(error)
        else:
            if not confirm.done():
                confirm.set_result(None)
        try:
            await confirm
        finally:
            pending.remove(confirm)
        self._library.stored.append(outgoing.body)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    names: dict[str, dict[str, Any]] = {
        "aio_pika": {
            "connect": found.connect,
            "Message": lambda body, **_: SimpleNamespace(body=body),
            "DeliveryMode": SimpleNamespace(PERSISTENT=2),
        },
        "aio_pika.exceptions": {
            "CONNECTION_EXCEPTIONS": (AMQPError, OSError, RuntimeError),
            "ChannelNotFoundEntity": NotFound,
            "ChannelPreconditionFailed": PreconditionFailed,
            "PublishError": type("PublishError", (AMQPError,), {}),
        },
        "aiormq.exceptions": {"ChannelAccessRefused": AccessRefused},
    }
    for name, values in names.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    return found


def source() -> AmqpSource:
    return AmqpSource("amqp://127.0.0.1/", "tasks", KeyRule(), 10)


def test_a_consumer_that_the_broker_cancels_is_reported(library: Library) -> None:
    async def run() -> None:
        consuming = source()
        await consuming.open()
        assert await consuming.receive(10, 0.001) == []
        library.consumers.clear()
        with pytest.raises(ConnectionLost, match="the broker has cancelled the consumer"):
            await consuming.receive(10, 0.001)
        await consuming.close()
        await consuming.open()
        assert await consuming.receive(10, 0.001) == []
        await consuming.close()

    asyncio.run(run())


def test_a_queue_on_a_node_that_is_down_is_not_missing(library: Library) -> None:
    library.missing = NotFound("home node 'rabbit@b' of durable queue 'tasks' is down or inaccessible")
    with pytest.raises(ConnectionLost, match=r"cannot use queue tasks at 127.0.0.1"):
        asyncio.run(source().open())
    library.missing = NotFound("no queue 'tasks' in vhost '/'")
    with pytest.raises(BridgeError, match=r"127.0.0.1 has no queue tasks") as caught:
        asyncio.run(source().open())
    assert not isinstance(caught.value, ConnectionLost)


def copy(count: int) -> FakeSource:
    records = FakeSource(map(message, range(count)))

    async def run() -> None:
        async with asyncio.timeout(60):
            await Copier(records, AmqpTarget("amqp://127.0.0.1/", "tasks"), QUICK).run()

    asyncio.run(run())
    return records


def test_the_message_that_is_too_large_is_named_and_the_others_are_stored(library: Library) -> None:
    def answer(body: bytes) -> None:
        if body == b"2":
            raise PreconditionFailed("message size is larger than configured max size")

    library.answer = answer
    with pytest.raises(BridgeError, match="refuses message S:2 of source: PreconditionFailed: message size"):
        copy(4)
    assert sorted(library.stored) == [b"0", b"1", b"3"]


def test_a_missing_right_to_write_stops_the_bridge(library: Library) -> None:
    def answer(body: bytes) -> None:
        raise AccessRefused("write access to exchange 'amq.default' refused")

    library.answer = answer
    with pytest.raises(BridgeError, match="refuses message S:0 of source: AccessRefused"):
        copy(3)
    assert library.stored == []
