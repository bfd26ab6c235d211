"""Clients that no broker accepts say why, at once, and name the setting to change."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.client import Admin, AuthenticationFailed, Consumer, DeliveryFailed, Producer, Queue
from penstock.client.connection_causes import Causes, Kind
from penstock.testing import BrokerThread
from tests.secured import HOST, broker_of_all_protocols, pki

USER, PASSWORD = "bob", "hunter2"
#: less than the clients would wait, by a wide margin
SOON_S = 15.0


@pytest.fixture(scope="module")
def secured() -> Iterator[BrokerThread]:
    with broker_of_all_protocols(USER, PASSWORD) as running:
        yield running


def listener(secured: BrokerThread, name: str) -> str:
    return next(
        f"{HOST}:{each.port}" for each in secured.broker.stages.listening.listeners if each.name == name
    )


def login(password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}


def tls(authority: str) -> dict[str, str]:
    return {"security.protocol": "ssl", "ssl.ca.location": pki()[authority]}


#: the listener, the settings of the client, and the words of the error: the cause and the remedy
CASES: dict[str, tuple[str, Callable[[], dict[str, str]], list[str]]] = {
    "wrong password": (
        "SASL_SSL",
        lambda: {**tls("ca"), "security.protocol": "sasl_ssl", **login("wrong")},
        ["refuses the login of user bob", "invalid credentials", "Check sasl.username, sasl.password"],
    ),
    "wrong password without TLS": (
        "LOGIN",
        lambda: {"security.protocol": "sasl_plaintext", **login("wrong", "PLAIN")},
        ["refuses the login of user bob", "invalid credentials"],
    ),
    "plaintext to TLS": ("TLS", dict, ["expects TLS", "security.protocol in config to ssl"]),
    "wrong authority": (
        "TLS",
        lambda: tls("other-ca"),
        [
            "the certificate of",
            "is not valid",
            "self-signed certificate in certificate chain",
            "ssl.ca.location",
        ],
    ),
    "TLS to plaintext": ("OPEN", lambda: tls("ca"), ["does not use TLS", "another port"]),
    "no login": ("LOGIN", dict, ["expects a login (PLAIN, SCRAM-SHA-512)", "sasl_plaintext"]),
    "login to plaintext": (
        "OPEN",
        lambda: {"security.protocol": "sasl_plaintext", **login(PASSWORD, "PLAIN")},
        ["has no login", "plaintext or ssl"],
    ),
}


async def produce(bootstrap: str, config: Mapping[str, Any]) -> None:
    async with Producer(bootstrap, connect_timeout=2 * SOON_S, config=config) as producer:
        await producer.send("topic", b"value")


async def produce_in_transactions(bootstrap: str, config: Mapping[str, Any]) -> None:
    async with Producer(bootstrap, connect_timeout=2 * SOON_S, config=config, transactional_id="id"):
        raise AssertionError("it has started")


async def consume(bootstrap: str, config: Mapping[str, Any]) -> None:
    consumer = Consumer(bootstrap, "topic", group="group", connect_timeout=2 * SOON_S, config=config)
    async with consumer:
        await anext(consumer)


async def list_topics(bootstrap: str, config: Mapping[str, Any]) -> None:
    async with Admin(bootstrap, timeout=2 * SOON_S, config=config) as admin:
        await admin.topics()


async def create_topic(bootstrap: str, config: Mapping[str, Any]) -> None:
    async with Admin(bootstrap, timeout=2 * SOON_S, config=config) as admin:
        await admin.create_topic("topic")


CLIENTS = [produce, produce_in_transactions, consume, list_topics, create_topic]
Client = Callable[[str, Mapping[str, Any]], Awaitable[None]]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
@pytest.mark.parametrize("case", ["wrong password", "plaintext to TLS", "wrong authority"])
def test_every_client_names_the_cause(secured: BrokerThread, client: Client, case: str) -> None:
    name, settings, words = CASES[case]
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed) as raised:
        asyncio.run(_until_refused(client, listener(secured, name), settings()))
    assert time.monotonic() - began < SOON_S
    assert not raised.value.retriable
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize("case", sorted(CASES))
def test_causes(secured: BrokerThread, case: str) -> None:
    name, settings, words = CASES[case]
    with pytest.raises(AuthenticationFailed) as raised:
        asyncio.run(list_topics(listener(secured, name), settings()))
    for word in words:
        assert word in str(raised.value)


async def _until_refused(client: Client, bootstrap: str, config: Mapping[str, Any]) -> None:
    try:
        await client(bootstrap, config)
    except DeliveryFailed as failed:  # of `close`, which flushes
        raise failed.first from failed


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_queue_names_the_cause_at_once(secured: BrokerThread, case: str) -> None:
    async def read(bootstrap: str, config: Mapping[str, Any]) -> None:
        async with Queue(bootstrap, "topic", group="g", connect_timeout=4 * SOON_S, config=config):
            raise AssertionError("it has started")

    name, settings, words = CASES[case]
    began = time.monotonic()
    with pytest.raises(AuthenticationFailed) as raised:
        asyncio.run(read(listener(secured, name), settings()))
    assert time.monotonic() - began < SOON_S
    for word in words:
        assert word.replace(" of user bob", "") in str(raised.value)


def test_a_queue_passes_over_a_broker_that_it_cannot_use(secured: BrokerThread) -> None:
    """One address of several may be wrong, or belong to another listener."""

    async def start() -> None:
        bootstrap = f"{listener(secured, 'TLS')},{listener(secured, 'OPEN')}"
        async with Queue(bootstrap, "topic", group="g", connect_timeout=4 * SOON_S):
            pass

    asyncio.run(start())


def test_an_admin_leaves_no_answer_that_asyncio_reports(secured: BrokerThread) -> None:
    """librdkafka answers a request after the client has reported the cause."""
    reported = []

    async def list_and_wait() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        with pytest.raises(AuthenticationFailed):
            await list_topics(listener(secured, "TLS"), {})
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(list_and_wait())
    assert reported == []


def test_a_certificate_of_another_host_is_distinguished_from_one_of_another_authority() -> None:
    """librdkafka reports both in the same words."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki()["server-elsewhere"])
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            connected, _ = server.accept()
            with suppress(ssl.SSLError), connected:
                context.wrap_socket(connected, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"{HOST}:{server.getsockname()[1]}"
        causes = Causes(address, tls("ca"))
        causes.note(KafkaError(KafkaError._SSL, f"ssl://{address}/bootstrap: certificate verify failed"))
        cause = causes.examined(10.0)
        thread.join()
    assert cause is not None and cause.kind is Kind.CERTIFICATE
    assert "IP address mismatch" in cause.text


def test_other_errors_are_no_cause() -> None:
    causes = Causes("127.0.0.1:1", {})
    for code in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE):
        causes.note(
            KafkaError(code, "127.0.0.1:1/bootstrap: Connection refused (after 0ms in state CONNECT)")
        )
    assert causes.reported is None
    assert causes.examined() is None


@pytest.mark.parametrize("response", [b"", b"\x00\x00\x00\x0a" + b"\xff" * 10, b"HTTP/1.1 400 Bad\r\n\r\n"])
def test_a_server_of_another_protocol_is_no_cause(response: bytes) -> None:
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            for _ in range(2):
                connected, _ = server.accept()
                with connected:
                    connected.recv(1000)
                    connected.sendall(response)

        thread = threading.Thread(target=serve)
        thread.start()
        assert Causes(f"{HOST}:{server.getsockname()[1]}", {}).examined(5.0) is None
        thread.join()
