"""Delegation tokens (KIP-48, KIP-373) at a cluster: requests, rights, logins with a token, and their end."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, PatternType, Permission, ResourceType
from penstock.security.mechanism import Login
from penstock.security.mechanisms import mechanism_named
from penstock.testing import BrokerThread, Cluster, broker
from penstock.testing import cluster as thread_cluster
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.create_delegation_token import (
    CREATE_DELEGATION_TOKEN,
    CreatableRenewer,
    CreateDelegationTokenRequest,
)
from penstock.wire.apis.describe_delegation_token import (
    DESCRIBE_DELEGATION_TOKEN,
    DescribeDelegationTokenRequest,
)
from penstock.wire.apis.expire_delegation_token import EXPIRE_DELEGATION_TOKEN, ExpireDelegationTokenRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.renew_delegation_token import RENEW_DELEGATION_TOKEN, RenewDelegationTokenRequest
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from tests.broker.logins import ports
from tests.broker.speaker import Speaker
from tests.secured import HOST
from tests.waiting import eventually

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SASL = {
    "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
    "connection.failed.authentication.delay.ms": "0",
}
JAAS = 'x required user_admin="a" user_alice="a" user_bob="a" user_eve="a";'
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    config = {
        **SASL,
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
        "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
    }
    with thread_cluster(brokers=3, config=config) as started:
        yield started


class Client(Speaker):
    """A connection to one of the brokers, so that some requests are forwarded."""

    session_ms = 0

    def plain(self, user: str) -> Client:
        assert self.handshake("PLAIN") == 0
        assert self.token(f"\0{user}\0a".encode()) == (0, None)
        return self

    def with_token(self, token_id: str, hmac: bytes, mechanism: str = MECHANISMS[0]) -> int:
        """The error code of a login with a token."""
        assert self.handshake(mechanism) == 0
        secret = b64encode(hmac).decode()
        login = Login(
            mechanism_named(mechanism), token_id, lambda: secret, lambda: "nonce", is_delegated=True
        )
        exchange = login.begin()
        token: bytes | None = exchange.start()
        while token is not None:
            answer = self.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                return int(answer.error_code)
            self.session_ms = answer.session_lifetime_ms
            token = exchange.step(answer.auth_bytes)
        return 0

    def create(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int = -1,
        version: int | None = None,
    ) -> Any:
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else "User",
            owner_principal_name=owner,
            renewers=[CreatableRenewer(principal_type="User", principal_name=name) for name in renewers],
            max_lifetime_ms=max_lifetime_ms,
        )
        return self.call(CREATE_DELEGATION_TOKEN, request, version)

    def renew(self, hmac: bytes) -> int:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1)
        return int(self.call(RENEW_DELEGATION_TOKEN, request).error_code)

    def expire(self, hmac: bytes) -> int:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
        return int(self.call(EXPIRE_DELEGATION_TOKEN, request).error_code)

    def tokens(self) -> set[str]:
        found = self.call(DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenRequest(owners=None))
        assert found.error_code == 0
        return {each.token_id for each in found.tokens}

    @property
    def is_served(self) -> bool:
        return self.call(METADATA, MetadataRequest(topics=[])) is not None

    @property
    def is_closed(self) -> bool:
        """Waits for the end of the connection, without a request."""
        return self.receive_raw() is None


def connect(running: Cluster, node: int) -> Client:
    return Client(int(running.address(node).rpartition(":")[2]))


def allow(running: Cluster, principal: str, operation: Operation, kind: ResourceType, name: str) -> None:
    creation = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
    with connect(running, 1).plain("admin") as admin:
        created = admin.call(CREATE_ACLS, CreateAclsRequest(creations=[creation]))
        assert created.results[0].error_code == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("version", [1, 3])
def test_a_token_logs_in_as_its_owner_at_every_broker(running: Cluster, mechanism: str, version: int) -> None:
    with connect(running, 2).plain("alice") as alice:
        made = alice.create(version=version)
        assert made.error_code == 0 and len(made.token_id) == 22
        for node in (1, 2, 3):
            with connect(running, node) as client:
                await_token(running, node, made.token_id)
                assert client.with_token(made.token_id, made.hmac, mechanism) == 0
                assert 0 < client.session_ms <= 24 * 3600 * 1000
                assert client.is_served
                # Its session must not make further tokens.
                assert client.create().error_code == NOT_ALLOWED
                assert client.renew(made.hmac) == client.expire(made.hmac) == NOT_ALLOWED
                described = client.call(
                    DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenRequest(owners=None)
                )
                assert described.error_code == NOT_ALLOWED
        assert alice.expire(made.hmac) == 0


def await_token(running: Cluster, node: int, token_id: str) -> None:
    """Wait until a broker knows a token of alice."""
    with connect(running, node).plain("alice") as client:
        eventually(lambda: token_id in client.tokens())


def test_a_wrong_hmac_and_an_unknown_token_are_refused(running: Cluster) -> None:
    with connect(running, 1).plain("alice") as alice:
        made = alice.create()
    for token_id, hmac in ((made.token_id, b"wrong"), ("unknown", made.hmac), ("alice", b"a")):
        with connect(running, 1) as client:
            assert client.with_token(token_id, hmac) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_requests_for_tokens_that_cannot_be_are_refused_at_every_broker(running: Cluster) -> None:
    """Each broker refuses them before the controller would decode them at once."""
    for node in (1, 2, 3):
        with connect(running, node).plain("alice") as alice:
            many = alice.create(renewers=[f"r{n}" for n in range(1001)])
            long = alice.create(renewers=["r" * 30_000] * 3)
            assert {many.error_code, long.error_code} == {ErrorCode.INVALID_REQUEST}
            refused = {alice.renew(b"x" * 65), alice.expire(b"x" * 65)}
            assert refused == {ErrorCode.DELEGATION_TOKEN_NOT_FOUND}


def test_a_token_is_no_user_and_a_user_no_token(running: Cluster) -> None:
    with connect(running, 1).plain("alice") as alice:
        made = alice.create()
    with connect(running, 1) as client:
        assert client.handshake(MECHANISMS[0]) == 0
        login = Login(
            mechanism_named(MECHANISMS[0]),
            made.token_id,
            lambda: b64encode(made.hmac).decode(),
            lambda: "nonce",
        )
        exchange = login.begin()
        answer = client.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=exchange.start()))
        proof = exchange.step(answer.auth_bytes)
        assert proof is not None
        answer = client.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=proof))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_an_ended_token_ends_its_connections_at_every_broker(running: Cluster) -> None:
    """Kafka keeps them open until the token would have expired."""
    with connect(running, 1).plain("alice") as alice, connect(running, 3).plain("bob") as bob:
        made, other = alice.create(renewers=["bob"]), alice.create()
        clients = []
        for node in (1, 2, 3):
            for token in (made, other):
                await_token(running, node, token.token_id)
                client = connect(running, node)
                assert client.with_token(token.token_id, token.hmac) == 0
                clients.append(client)
        assert bob.expire(other.hmac) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert bob.renew(made.hmac) == 0
        assert bob.expire(made.hmac) == 0
        assert all(client.is_closed for client in clients[::2])
        assert all(client.is_served for client in clients[1::2])
        assert alice.is_served
        for client in clients:
            client.close()
        assert alice.renew(made.hmac) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_of_another_owner_needs_create_tokens(running: Cluster) -> None:
    with connect(running, 3).plain("bob") as bob:
        refused = bob.create(owner="eve")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (refused.principal_name, refused.token_requester_principal_name) == ("eve", "bob")
        allow(running, "User:bob", Operation.CREATE_TOKENS, ResourceType.USER, "User:eve")
        made = bob.create(owner="eve")
        assert made.error_code == 0
        # The requester may create it, and has no part in it afterwards.
        assert bob.renew(made.hmac) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert made.token_id not in bob.tokens()
        allow(running, "User:bob", Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:eve")
        eventually(lambda: made.token_id in bob.tokens())


def test_describe_on_a_token_shows_that_token(running: Cluster) -> None:
    with connect(running, 1).plain("alice") as alice:
        made, other = alice.create(), alice.create()
    allow(running, "User:eve", Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, made.token_id)
    with connect(running, 1).plain("eve") as eve:
        eventually(lambda: made.token_id in eve.tokens())
        assert other.token_id not in eve.tokens()


@pytest.fixture(scope="module")
def single() -> Iterator[BrokerThread]:
    """A broker without tokens, and with a listener without authentication."""
    config = {
        **SASL,
        "listeners": f"PLAINTEXT://{HOST}:0,SASL://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.jaas.config": JAAS,
        "delegation.token.secret.key": "",
    }
    with broker(config=config) as started:
        yield started


def test_tokens_are_disabled_without_a_secret(single: BrokerThread) -> None:
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    with Client(ports(single)["SASL"]).plain("alice") as alice:
        assert alice.create().error_code == disabled
        assert alice.renew(b"x") == alice.expire(b"x") == disabled
        found = alice.call(DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenRequest(owners=None))
        assert found.error_code == disabled
    with Client(ports(single)["SASL"]) as client:
        assert client.with_token("id", b"x") == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_client_without_an_identity_may_not_request_tokens(single: BrokerThread) -> None:
    with Client(ports(single)["PLAINTEXT"]) as client:
        refused = client.create(owner="bob")
        assert (refused.error_code, refused.principal_name) == (NOT_ALLOWED, "bob")
        assert refused.issue_timestamp_ms == -1
        assert client.renew(b"x") == client.expire(b"x") == NOT_ALLOWED
        found = client.call(DESCRIBE_DELEGATION_TOKEN, DescribeDelegationTokenRequest(owners=None))
        assert found.error_code == NOT_ALLOWED


def test_an_expired_token_is_refused_and_removed() -> None:
    config = {
        **SASL,
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.jaas.config": JAAS,
        "delegation.token.secret.key": "secret",
        "delegation.token.expiry.check.interval.ms": "200",
    }
    with broker(config=config) as started:
        port = ports(started)["SASL"]
        with Client(port).plain("alice") as alice:
            short, long = alice.create(max_lifetime_ms=1), alice.create()
            with Client(port) as client:
                assert client.with_token(short.token_id, short.hmac) == ErrorCode.SASL_AUTHENTICATION_FAILED
            eventually(lambda: alice.tokens() == {long.token_id})
