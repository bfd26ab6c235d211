"""Clients of ours with OAUTHBEARER at a real broker: tokens of an endpoint, of a file and of a function."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from penstock.broker.base.system_ports import SystemRng
from penstock.client.queues.connections import security_from
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.net.client import Peer
from penstock.net.client_security import ClientSecurity, client_security, librdkafka_security
from penstock.net.peer_errors import PeerLost
from penstock.net.token_source import TokenSource
from penstock.reading.connection import Connection, Security
from penstock.security.bearer_settings import token_settings
from penstock.security.mechanism import Login
from penstock.security.sasl_bearer import OAUTHBEARER
from penstock.security.sasl_client import SaltedPasswords
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.tokens import CLIENT, HOST, TokenIssuer
from tests.waiting import eventually


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenIssuer]:
    made = TokenIssuer()
    yield made
    made.close()


@pytest.fixture
def issuer(endpoint: TokenIssuer) -> TokenIssuer:
    endpoint.forms.clear()
    endpoint.answer = None
    return endpoint


@pytest.fixture(scope="module")
def running(endpoint: TokenIssuer) -> Iterator[BrokerThread]:
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": endpoint.jwks_url,
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{CLIENT}",
    }
    with broker(config=config) as started:
        yield started


def port(running: BrokerThread) -> int:
    return running.broker.stages.listening.listeners[0].port


def nonce() -> str:
    return "n"


async def calls(running: BrokerThread, security: ClientSecurity | None, count: int = 1) -> list[Any]:
    peer = Peer(
        asyncio.get_running_loop(), HOST, port(running), client_id="t", rng=SystemRng(), security=security
    )
    try:
        return [await peer.send(METADATA, MetadataRequest(), 10.0) for _ in range(count)]
    finally:
        peer.close()


def test_a_peer_logs_in_with_client_credentials(running: BrokerThread, issuer: TokenIssuer) -> None:
    security = client_security("SASL_PLAINTEXT", issuer.client().get, nonce, in_thread=asyncio.to_thread)
    assert asyncio.run(calls(running, security))[0].brokers
    assert asyncio.run(calls(running, security))[0].brokers
    assert len(issuer.forms) == 1, "both connections use one token"


def test_a_wrong_secret_is_reported(running: BrokerThread, issuer: TokenIssuer) -> None:
    wrong = issuer.client(client_credentials_client_secret="guess")
    security = client_security("SASL_PLAINTEXT", wrong.get, nonce, in_thread=asyncio.to_thread)
    with pytest.raises(PeerLost, match="answered 401: invalid_client: unknown client"):
        asyncio.run(calls(running, security))


def test_a_peer_authenticates_again_with_a_new_token(running: BrokerThread, issuer: TokenIssuer) -> None:
    """KIP-368: the session ends with its token; the connection stays."""
    ahead_s = 0.0
    tokens = TokenSource(token_settings(issuer.client().get), now=lambda: time.time() + ahead_s)
    login = Login(OAUTHBEARER, CLIENT, str, nonce, SaltedPasswords(deferred=True), tokens)
    security = ClientSecurity(None, login, asyncio.to_thread)

    async def work() -> None:
        nonlocal ahead_s
        loop = asyncio.get_running_loop()
        peer = Peer(loop, HOST, port(running), client_id="t", rng=SystemRng(), security=security)
        assert (await peer.send(METADATA, MetadataRequest(), 10.0)).brokers
        # Connections of other tests end soon.
        eventually(lambda: len(running.broker.stages.listening.server.connections) == 1)
        (connection,) = running.broker.stages.listening.server.connections
        gate: Any = connection.application
        # A broker accepts the next authentication after a second.
        gate._authenticated_at -= 2.0
        ahead_s = 500.0
        link: Any = peer.link
        link.authenticate()
        assert (await peer.send(METADATA, MetadataRequest(), 10.0)).brokers
        assert peer.link is link and not connection.closed
        peer.close()

    asyncio.run(work())
    assert len(issuer.forms) == 2


def test_the_spark_source_logs_in_with_a_token_file(
    running: BrokerThread, issuer: TokenIssuer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.sign())
    settings = issuer.client(token_endpoint_url=file.as_uri())
    connection = Connection((HOST, port(running)), "t", Security("SASL_PLAINTEXT", tuple(settings.items())))
    connection.open(10.0)
    try:
        assert connection.call(DESCRIBE_CLUSTER, DescribeClusterRequest()).brokers
    finally:
        connection.close()
    assert not issuer.forms


@pytest.mark.parametrize("kind", ["endpoint", "file"])
def test_librdkafka_logs_in_with_the_settings_of_java_clients(
    running: BrokerThread, issuer: TokenIssuer, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "token"
    file.write_text(issuer.sign())
    settings = issuer.client() if kind == "endpoint" else issuer.client(token_endpoint_url=file.as_uri())
    admin = AdminClient(
        {"bootstrap.servers": f"{HOST}:{port(running)}", "log_level": 0, **librdkafka_security(settings)}
    )
    assert admin.list_topics(timeout=60).brokers
    assert bool(issuer.forms) == (kind == "endpoint")


def test_a_queue_takes_the_names_and_the_function_of_librdkafka(
    running: BrokerThread, issuer: TokenIssuer
) -> None:
    own = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": issuer.client()[
            "sasl.oauthbearer.client.credentials.client.secret"
        ],
        "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
    }
    assert asyncio.run(calls(running, security_from(own)))[0].brokers
    assert len(issuer.forms) == 1
    function = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda config: (issuer.sign(), time.time() + 600),
    }
    assert asyncio.run(calls(running, security_from(function)))[0].brokers
    assert len(issuer.forms) == 1
