"""Revoked users: their connections end at every broker, and those without another proof do not come back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.request.revocations import Revocations
from penstock.metadata.access import REVOKED_AT
from penstock.metadata.image import REVOCATION, ClusterImage
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.security.mechanism import Login
from penstock.security.mechanisms import mechanism_named
from penstock.security.principal import Principal, Session
from penstock.testing import Cluster
from penstock.testing import cluster as thread_cluster
from penstock.wire.apis.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.security_records import RemoveUserScramCredentialRecord
from tests.broker.speaker import Speaker
from tests.waiting import eventually

MECHANISM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    config = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
        "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
        "listener.name.plaintext.plain.sasl.jaas.config": 'x required user_admin="a" user_bob="b";',
        "connection.failed.authentication.delay.ms": "0",
        "connections.max.reauth.ms": "3600000",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with thread_cluster(brokers=3, config=config) as started:
        yield started


class Client(Speaker):
    def __init__(self, running: Cluster, node: int) -> None:
        super().__init__(int(running.address(node).rpartition(":")[2]))

    def plain(self, user: str, password: str) -> Client:
        assert self.handshake("PLAIN") == 0
        assert self.token(f"\0{user}\0{password}".encode()) == (0, None)
        return self

    def scram(self, user: str, password: str) -> int:
        """The error code of an exchange."""
        assert self.handshake(MECHANISM) == 0
        exchange = Login(mechanism_named(MECHANISM), user, lambda: password, lambda: "nonce").begin()
        token: bytes | None = exchange.start()
        code = 0
        while token is not None and not code:
            answer = self.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
            code = answer.error_code
            token = None if code else exchange.step(answer.auth_bytes)
        return code

    @property
    def is_served(self) -> bool:
        return self.call(METADATA, MetadataRequest(topics=[])) is not None

    @property
    def is_closed(self) -> bool:
        """Waits for the end of the connection, without a request."""
        return self.receive_raw() is None


@pytest.fixture
def admin(running: Cluster) -> Iterator[Client]:
    with Client(running, 1) as client:
        yield client.plain("admin", "a")


def set_password(admin: Client, user: str, password: str) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b"salt" * 4, 4096)
    change = ScramCredentialUpsertion(
        name=user, mechanism=1, iterations=4096, salt=b"salt" * 4, salted_password=salted
    )
    request = AlterUserScramCredentialsRequest(upsertions=[change])
    assert admin.call(ALTER_USER_SCRAM_CREDENTIALS, request).results[0].error_code == 0


def remove_password(admin: Client, user: str) -> None:
    change = ScramCredentialDeletion(name=user, mechanism=1)
    request = AlterUserScramCredentialsRequest(deletions=[change])
    assert admin.call(ALTER_USER_SCRAM_CREDENTIALS, request).results[0].error_code == 0


def revoke(client: Client, principal: str, at: str) -> int:
    change = AlterableConfig(name=REVOKED_AT, config_operation=0, value=at)
    resource = AlterConfigsResource(resource_type=REVOCATION, resource_name=principal, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return int(client.call(INCREMENTAL_ALTER_CONFIGS, request).responses[0].error_code)


def test_a_removed_credential_ends_its_sessions_at_all_brokers(running: Cluster, admin: Client) -> None:
    """Kafka keeps them open."""
    for name in ("alice", "carol"):
        set_password(admin, name, "secret")
    nodes = [running._running(node).broker for node in running.ids]
    eventually(
        lambda: all(
            (name, 1) in each.stages.cluster.image.scram for each in nodes for name in ("alice", "carol")
        )
    )
    with (
        Client(running, 1) as first,
        Client(running, 2) as second,
        Client(running, 2) as carol,
        Client(running, 2) as bob,
    ):
        assert first.scram("alice", "secret") == second.scram("alice", "secret") == 0
        assert carol.scram("carol", "secret") == 0
        bob.plain("bob", "b")
        remove_password(admin, "alice")
        assert first.is_closed and second.is_closed
        assert carol.is_served and bob.is_served
        with Client(running, 2) as again:
            assert again.scram("alice", "secret") == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_revoked_principal_is_disconnected_at_all_brokers(running: Cluster, admin: Client) -> None:
    with Client(running, 1) as first, Client(running, 2) as second, Client(running, 2) as other:
        first.plain("bob", "b")
        second.plain("bob", "b")
        other.plain("admin", "a")
        assert revoke(admin, "User:bob", "1") == 0
        assert first.is_closed and second.is_closed
        assert other.is_served
        # Its password is in a config file, so it can come back, until the next revocation.
        with Client(running, 2) as again:
            again.plain("bob", "b")
            assert again.is_served
            assert revoke(admin, "User:bob", "2") == 0
            assert again.is_closed


def test_a_broker_that_was_down_closes_nothing_after_its_start(running: Cluster, admin: Client) -> None:
    running.stop(3)
    assert revoke(admin, "User:bob", "3") == 0
    running.start(3)
    with Client(running, 3) as bob:
        bob.plain("bob", "b")
        assert revoke(admin, "User:other", "1") == 0
        node = running._running(3).broker
        eventually(lambda: (REVOCATION, "User:other") in node.stages.cluster.image.configs)
        assert bob.is_served


def test_a_session_that_authenticates_again_is_revoked_too(running: Cluster, admin: Client) -> None:
    """Between the two requests of a re-authentication (KIP-368)."""
    server = running._running(1).broker.stages.listening.server
    with Client(running, 1) as bob:
        bob.plain("bob", "b")
        peer = "{}:{}".format(*bob.socket.getsockname())
        (connection,) = [each for each in server.connections if each.peer == peer]
        gate: Any = connection.application
        gate._authenticated_at -= 2
        assert bob.handshake("PLAIN") == 0
        assert revoke(admin, "User:bob", "4") == 0
        assert bob.is_closed


def test_a_revocation_needs_alter_on_the_cluster(running: Cluster, admin: Client) -> None:
    with Client(running, 2) as bob:
        bob.plain("bob", "b")
        assert revoke(bob, "User:admin", "1") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert admin.is_served
    for principal, at in (("Role:x", "1"), ("nobody", "1"), ("User:bob", "x")):
        assert revoke(admin, principal, at) == ErrorCode.INVALID_CONFIG


class Connected:
    def __init__(self, name: str, mechanism: str | None = None) -> None:
        self.session = Session(Principal("User", name), mechanism=mechanism)
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_revocations_of_a_snapshot() -> None:
    """A node that was cut off learns of them from a snapshot, which also repeats the known ones."""
    image = ClusterImage()
    known = ConfigRecord(resource_type=REVOCATION, resource_name="User:a", name=REVOKED_AT, value="1")
    image.apply(known, 1)
    a, b, c, d = Connected("a"), Connected("b"), Connected("c", MECHANISM), Connected("c", "PLAIN")
    server: Any = type("Connections", (), {"connections": dict.fromkeys((a, b, c, d))})
    revocations = Revocations(image, [server])
    revocations.start()
    new = ConfigRecord(resource_type=REVOCATION, resource_name="User:b", name=REVOKED_AT, value="1")
    image.apply(new, 2)
    revocations.applied([known, new, RemoveUserScramCredentialRecord(name="c", mechanism=1)])
    assert [each.aborted for each in (a, b, c, d)] == [False, True, True, False]
