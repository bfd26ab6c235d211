"""What a bridge checks of a stream and of an existing consumer, with a client library in memory."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.bridge.errors import BridgeError, ConnectionLost, WriteFailed
from penstock.bridge.mapping import KeyRule
from penstock.bridge.nats_streams import NatsServers, NatsSource, NatsTarget
from tests.bridge.fakes import message

SERVERS = NatsServers("nats://127.0.0.1:1")


class Error(Exception): ...


class BadRequest(Error): ...


class Client:
    """The calls of nats-py that the bridge makes."""

    def __init__(self) -> None:
        self.is_closed = False
        self.closed = 0
        self.subjects: list[str] | None = ["orders.*", "audit.>"]
        self.fails: dict[str, Exception] = {}
        self.config = SimpleNamespace(
            filter_subject=None,
            filter_subjects=None,
            deliver_subject=None,
            ack_policy="explicit",
            ack_wait=30.0,
            headers_only=None,
            max_deliver=-1,
        )

    def _fail(self, name: str) -> None:
        if name in self.fails:
            raise self.fails.pop(name)

    async def connect(self, urls: list[str], **_: object) -> Client:
        self._fail("connect")
        return self

    def jetstream(self) -> Client:
        return self

    async def stream_info(self, name: str) -> Any:
        self._fail("stream_info")
        return SimpleNamespace(created=None, config=SimpleNamespace(subjects=self.subjects))

    async def consumer_info(self, stream: str, durable: str) -> Any:
        return SimpleNamespace(config=self.config)

    async def pull_subscribe_bind(self, consumer: str, stream: str) -> object:
        return object()

    async def publish(self, *_: object, **__: object) -> None:
        self._fail("publish")

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    found = Client()
    errors = SimpleNamespace(
        Error=Error,
        MaxPayloadError=type("MaxPayloadError", (Error,), {}),
        BadSubjectError=type("BadSubjectError", (Error,), {}),
    )
    of_streams = {
        "NotFoundError": type("NotFoundError", (Error,), {}),
        "ServiceUnavailableError": type("ServiceUnavailableError", (Error,), {}),
        "BadRequestError": BadRequest,
    }
    names: dict[str, dict[str, Any]] = {
        "nats": {"connect": found.connect, "errors": errors},
        "nats.js.errors": of_streams,
        "nats.js.api": {},
    }
    for name, values in names.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    return found


def open_source(subject: str | None = None) -> None:
    asyncio.run(NatsSource(SERVERS, "ORDERS", "billing", subject, KeyRule(), 10).open())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"ack_policy": "all"}, "has acknowledgement policy all, not explicit"),
        ({"ack_policy": "none"}, "has acknowledgement policy none, not explicit"),
        ({"deliver_subject": "push.here"}, "is a push consumer"),
        ({"filter_subjects": ["a.*", "b.*"]}, r"has subject a\.\*, b\.\*, not any"),
        ({"headers_only": True}, "delivers only headers"),
        ({"max_deliver": 5}, "drops messages after 5 deliveries"),
    ],
)
def test_a_consumer_that_would_lose_messages_is_refused(
    client: Client, values: dict[str, Any], text: str
) -> None:
    vars(client.config).update(values)
    with pytest.raises(BridgeError, match=f"the consumer billing of stream ORDERS {text}: choose another"):
        open_source()


def test_secrets_in_urls_stay_out_of_messages(client: Client) -> None:
    client.fails["connect"] = OSError("refused")
    servers = NatsServers("nats://me:p/w@a:1, nats://token@b:2,nats://c:3")
    expected = r"no NATS server answers at nats://a:1,nats://b:2,nats://c:3 \(.*refused"
    with pytest.raises(ConnectionLost, match=expected):
        asyncio.run(servers.connect())


def test_the_consumer_of_an_application_is_continued(client: Client) -> None:
    open_source()
    client.config.filter_subjects, client.config.max_deliver = ["orders.*"], None
    open_source("orders.*")


@pytest.mark.parametrize("subject", ["orders.new", "audit.a", "audit.a.b"])
def test_a_subject_of_the_stream_can_be_written(client: Client, subject: str) -> None:
    asyncio.run(NatsTarget(SERVERS, "ORDERS", subject).open())
    assert client.closed == 0


@pytest.mark.parametrize("subject", ["orders", "orders.new.eu", "audit", "order.new"])
def test_a_subject_that_the_stream_does_not_store_is_refused(client: Client, subject: str) -> None:
    with pytest.raises(
        BridgeError, match=rf"does not store subject {subject} \(its subjects: orders.\*, aud"
    ):
        asyncio.run(NatsTarget(SERVERS, "ORDERS", subject).open())
    assert client.closed == 1
    client.subjects = None
    with pytest.raises(BridgeError, match=r"\(its subjects: none\)"):
        asyncio.run(NatsTarget(SERVERS, "ORDERS", subject).open())


def test_refused_messages_are_not_written_again(client: Client) -> None:
    async def write(*errors: Exception) -> list[WriteFailed | None]:
        target = NatsTarget(SERVERS, "ORDERS", "orders.new")
        results: asyncio.Queue[WriteFailed | None] = asyncio.Queue()
        found = []
        for error in errors:
            client.fails = {"publish": error}
            await target.write(message(1), results.put_nowait)
            found.append(await asyncio.wait_for(results.get(), 60))
        await target.close()
        return found

    refused, failed = asyncio.run(write(BadRequest("message size exceeds maximum allowed"), Error("closed")))
    assert refused is not None and not refused.retriable
    assert failed is not None and failed.retriable


def test_a_target_without_its_stream_is_opened_again_by_the_next_write(client: Client) -> None:
    async def run() -> None:
        target = NatsTarget(SERVERS, "ORDERS", "orders.new")
        client.fails = {"stream_info": TimeoutError()}
        with pytest.raises(ConnectionLost, match="JetStream does not answer"):
            await target.open()
        results: asyncio.Queue[WriteFailed | None] = asyncio.Queue()
        await target.write(message(1), results.put_nowait)
        assert await asyncio.wait_for(results.get(), 60) is None

    asyncio.run(run())
    assert client.closed == 1
