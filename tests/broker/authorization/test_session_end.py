"""Sessions that end, and tokens: every path of a connection loses access with the next request.

One broker with PLAIN and OAUTHBEARER, whose JWKS comes from an HTTP server on loopback.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, cast

import pytest

from penstock.broker.base.bearer_tokens import BearerTokens
from penstock.broker.fetch.repeated_client import RepeatedClientFetches
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.security.acls import Operation, PatternType, Permission, ResourceType
from penstock.security.sasl import Identity
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from penstock.wire.apis.fetch import FETCH, FetchRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.messages import decode_response, encode_request
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, batch_of, fetch_request, new_name, produce_request, wanted
from tests.broker.share_groups import Member
from tests.broker.speaker import Speaker
from tests.secured import HOST
from tests.waiting import eventually

jwt = pytest.importorskip("jwt")
pytest.importorskip("cryptography")

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ, WRITE, CREATE = Operation.READ, Operation.WRITE, Operation.CREATE
BEARER = "OAUTHBEARER"


class Issuer:
    """Signs tokens, and serves its public keys over HTTP."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

        self.key = generate_private_key(SECP256R1())
        self.other = generate_private_key(SECP256R1())
        self.public = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key())
        content = json.dumps({"keys": [{**json.loads(self.public), "kid": "k1"}]}).encode()

        class Keys(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self.server = HTTPServer((HOST, 0), Keys)
        self.url = f"http://{HOST}:{self.server.server_address[1]}/jwks.json"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def claims(self, **changes: object) -> dict[str, object]:
        content = {"sub": "eve", "aud": "penstock", "exp": int(time.time()) + 600, **changes}
        return {name: value for name, value in content.items() if value is not None}

    def sign(self, *, kid: str = "k1", key: Any = None, algorithm: str = "ES256", **changes: object) -> str:
        key = self.key if key is None else key
        token: str = jwt.encode(self.claims(**changes), key, algorithm=algorithm, headers={"kid": kid})
        return token


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


@pytest.fixture(scope="module")
def running(issuer: Issuer) -> Iterator[BrokerThread]:
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": f"PLAIN,{BEARER}",
        "listener.name.sasl.plain.sasl.jaas.config": 'x required user_admin="a" user_bob="b";',
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.audience": "penstock",
        "connections.max.reauth.ms": "60000",
        "connection.failed.authentication.delay.ms": "0",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    with broker(config=config) as started:
        yield started


class Client(Speaker):
    """A client that is authenticated."""

    def __init__(self, running: BrokerThread, token: bytes, mechanism: str = "PLAIN") -> None:
        super().__init__(running.broker.stages.listening.listeners[0].port)
        self.mechanism = mechanism
        self.log_in(token)
        peer = "{}:{}".format(*self.socket.getsockname())
        (self.connection,) = [
            known for known in running.broker.stages.listening.server.connections if known.peer == peer
        ]

    def log_in(self, token: bytes) -> int:
        """Authenticate, or authenticate again; the lifetime of the session."""
        assert self.handshake(self.mechanism) == 0
        answer = self.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
        assert answer.error_code == ErrorCode.NONE
        lifetime_ms: int = answer.session_lifetime_ms
        return lifetime_ms

    def age(self, seconds: float) -> None:
        """Move the session into the past; it stays the same object, which fast paths compare."""
        gate: Any = self.connection.application
        gate._authenticated_at -= seconds
        session = self.connection.session
        assert session.expires_at is not None
        object.__setattr__(session, "expires_at", session.expires_at - seconds)

    def fetch(self, topic: Topic, offset: int, **settings: Any) -> Any:
        settings = {"max_wait_ms": 0, **settings}
        return self.call(FETCH, fetch_request([(topic, [wanted(offset)])], version=16, **settings), 16)

    def fetch_code(self, topic: Topic, offset: int) -> int:
        ((partition,),) = [each.partitions for each in self.fetch(topic, offset).responses]
        return int(partition.error_code)

    def produce(self, topic: Topic) -> Any:
        return self.call(PRODUCE, produce_request(topic, batch_of([b"x"]), version=12), 12)

    def create(self, name: str) -> Any:
        wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        return self.call(CREATE_TOPICS, CreateTopicsRequest(topics=[wanted], timeout_ms=5000), 7)


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


@pytest.fixture(scope="module")
def admin(running: BrokerThread) -> Iterator[Client]:
    with Client(running, b"\0admin\0a") as client:
        yield client


@pytest.fixture
def bob(running: BrokerThread) -> Iterator[Client]:
    with Client(running, b"\0bob\0b") as client:
        yield client


def allow(admin: Client, principal: str, operation: Operation, topic: str, deny: bool = False) -> None:
    creation = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        resource_pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=Permission.DENY if deny else Permission.ALLOW,
    )
    (result,) = admin.call(CREATE_ACLS, CreateAclsRequest(creations=[creation]), 3).results
    assert result.error_code == ErrorCode.NONE


def revoke(admin: Client, topic: str) -> None:
    wanted = DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=PatternType.ANY,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    (result,) = admin.call(DELETE_ACLS, DeleteAclsRequest(filters=[wanted]), 3).filter_results
    assert result.matching_acls


@pytest.fixture
def topic(admin: Client) -> Topic:
    (made,) = admin.create(new_name()).topics
    assert made.error_code == ErrorCode.NONE
    found = Topic(made.name, TopicId(made.topic_id))
    for operation in (READ, WRITE):
        allow(admin, "User:bob", operation, found.name)
    return found


# -- the fast paths


def repeat_fetches(client: Client, topic: Topic) -> None:
    """Make the broker recognise the client's fetches."""
    for offset in range(4):
        client.produce(topic)
        assert client.fetch_code(topic, offset) == ErrorCode.NONE
    memo = client.connection.memo
    assert isinstance(memo, RepeatedClientFetches) and memo.last is not None


def produced(client: Client, topic: Topic) -> Callable[[], Any]:
    for _ in range(3):
        client.produce(topic)
    return lambda: client.produce(topic)


def fetched_again(client: Client, topic: Topic) -> Callable[[], Any]:
    repeat_fetches(client, topic)
    return lambda: client.fetch(topic, 3)


def fetched_in_a_session(client: Client, topic: Topic) -> Callable[[], Any]:
    session_id = client.fetch(topic, 0, session_epoch=0).session_id
    assert session_id
    request = FetchRequest(session_id=session_id, session_epoch=1, max_bytes=1 << 20, max_wait_ms=0)
    return lambda: client.call(FETCH, request, 16)


def forwarded(client: Client, topic: Topic) -> Callable[[], Any]:
    return lambda: client.create(topic.name)


def described(client: Client, topic: Topic) -> Callable[[], Any]:
    return lambda: client.call(METADATA, MetadataRequest())


PATHS = [produced, fetched_again, fetched_in_a_session, forwarded, described]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_outlives_the_session(
    bob: Client, topic: Topic, path: Callable[[Client, Topic], Callable[[], Any]]
) -> None:
    request = path(bob, topic)
    bob.age(59)
    assert bob.call(METADATA, MetadataRequest()) is not None
    bob.age(2)
    assert request() is None


def long_poll(client: Client, topic: Topic, version: int = 16) -> None:
    """Send a Fetch that waits for half a minute."""
    request = fetch_request([(topic, [wanted(0)])], version=version, max_wait_ms=30_000)
    client.socket.sendall(b"".join(encode_request(FETCH, version, 7, "t", request)))  # type: ignore[arg-type]
    eventually(lambda: bool(list(client.connection.pending_requests())))


def fetch_answer(client: Client, version: int = 16) -> Any:
    raw = client.receive_raw()
    return None if raw is None else decode_response(FETCH, version, memoryview(raw))


def test_a_long_poll_that_outlives_the_session_yields_no_records(
    bob: Client, admin: Client, topic: Topic
) -> None:
    """Kafka sends the records, and closes the connection at the next request."""
    long_poll(bob, topic)
    bob.age(61)
    admin.produce(topic)
    answer = fetch_answer(bob)
    assert (answer.error_code, answer.responses) == (ErrorCode.SASL_AUTHENTICATION_FAILED, [])
    assert bob.fetch(topic, 1) is None


def test_a_long_poll_ends_with_the_session(
    running: BrokerThread, issuer: Issuer, admin: Client, topic: Topic
) -> None:
    """No record comes: the session alone ends the wait. The client can authenticate again."""
    allow(admin, "User:eve", READ, topic.name)
    with Client(running, bearer(issuer.sign(exp=int(time.time()) + 3)), BEARER) as client:
        long_poll(client, topic)
        began = time.monotonic()
        assert fetch_answer(client).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert time.monotonic() - began < 20
        client.log_in(bearer(issuer.sign()))
        admin.produce(topic)
        assert client.fetch_code(topic, 0) == ErrorCode.NONE


class _ByVersion:
    """A client as members of share groups use it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def call(self, api: Any, version: int, request: Any) -> Any:
        return self._client.call(api, request, version)


def test_a_share_fetch_ends_with_the_session_and_acquires_nothing(
    running: BrokerThread, issuer: Issuer, admin: Client, topic: Topic
) -> None:
    group = new_name("group")
    other = Member(cast(RawClient, _ByVersion(admin)), group, topic).join()
    token = issuer.sign(sub="admin", exp=int(time.time()) + 4)
    with Client(running, bearer(token), BEARER) as client:
        member = Member(cast(RawClient, _ByVersion(client)), group, topic).join()
        response, _ = member.fetch(max_wait_ms=30_000)
        while not response.error_code:
            response, _ = member.fetch(max_wait_ms=30_000)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.connection.session.expires_at is not None
        # Its lock would keep the record from others for half a minute.
        admin.produce(topic)
        began = time.monotonic()
        assert [first for first, _, _ in other.take()] == [0]
        assert time.monotonic() - began < 20


def test_an_old_long_poll_is_closed_with_the_session(
    running: BrokerThread, issuer: Issuer, admin: Client, topic: Topic
) -> None:
    """Fetch has no error of the whole response before version 7."""
    allow(admin, "User:eve", READ, topic.name)
    with Client(running, bearer(issuer.sign(exp=int(time.time()) + 3)), BEARER) as client:
        long_poll(client, topic, version=6)
        assert fetch_answer(client, version=6) is None


def test_authentication_in_time_keeps_a_long_poll(bob: Client, admin: Client, topic: Topic) -> None:
    long_poll(bob, topic)
    bob.age(2)
    request = SaslHandshakeRequest(mechanism="PLAIN")
    bob.socket.sendall(b"".join(encode_request(SASL_HANDSHAKE, 1, 8, "t", request)))  # type: ignore[arg-type]
    admin.produce(topic)
    ((partition,),) = [each.partitions for each in fetch_answer(bob).responses]
    assert partition.error_code == ErrorCode.NONE and partition.records


def test_memoised_rights_to_produce_end_with_the_acl(bob: Client, admin: Client, topic: Topic) -> None:
    def code() -> int:
        ((partition,),) = [each.partition_responses for each in bob.produce(topic).responses]
        return int(partition.error_code)

    assert [code(), code()] == [ErrorCode.NONE] * 2
    revoke(admin, topic.name)
    assert code() == DENIED


def test_the_rights_of_forwarded_requests_end_with_the_acl(bob: Client, admin: Client) -> None:
    names = [new_name(), new_name()]

    def code(name: str) -> int:
        return int(bob.create(name).topics[0].error_code)

    assert code(names[0]) == DENIED
    for name in names:
        allow(admin, "User:bob", CREATE, name)
    assert code(names[0]) == ErrorCode.NONE
    revoke(admin, names[1])
    assert code(names[1]) == DENIED


# -- tokens over the wire


def test_the_groups_of_a_token_are_roles(
    running: BrokerThread, issuer: Issuer, admin: Client, topic: Topic
) -> None:
    allow(admin, "Role:readers", READ, topic.name)
    with Client(running, bearer(issuer.sign(groups=["readers"])), BEARER) as client:
        assert str(client.connection.session.principal) == "User:eve"
        assert client.fetch_code(topic, 0) == ErrorCode.NONE
    with Client(running, bearer(issuer.sign()), BEARER) as client:
        assert client.fetch_code(topic, 0) == DENIED


def test_a_group_that_the_next_token_lacks_ends_repeated_fetches(
    running: BrokerThread, issuer: Issuer, admin: Client, topic: Topic
) -> None:
    """Re-authentication replaces the session, and a memo holds for its own session only."""
    for operation in (READ, WRITE):
        allow(admin, "Role:users", operation, topic.name)
    with Client(running, bearer(issuer.sign(groups=["users"])), BEARER) as client:
        repeat_fetches(client, topic)
        client.age(2)
        client.log_in(bearer(issuer.sign()))
        assert client.fetch_code(topic, 3) == DENIED


def test_a_session_ends_with_its_token(running: BrokerThread, issuer: Issuer, topic: Topic) -> None:
    with Client(running, bearer(issuer.sign()), BEARER) as client:
        client.age(2)
        lifetime_ms = client.log_in(bearer(issuer.sign(exp=int(time.time()) + 20)))
        assert 0 < lifetime_ms <= 20_000
        client.age(21)
        assert client.call(METADATA, MetadataRequest()) is None


FORGERIES: dict[str, Callable[[Issuer], str]] = {
    "none": lambda issuer: str(jwt.encode(issuer.claims(), None, algorithm="none", headers={"kid": "k1"})),
    "HS256 with the public key": lambda issuer: issuer.sign(key=b"x" * 64, algorithm="HS256"),
    "another key": lambda issuer: issuer.sign(key=issuer.other),
    "unknown key id": lambda issuer: issuer.sign(kid="k2"),
    "wrong audience": lambda issuer: issuer.sign(aud="elsewhere"),
    "no audience": lambda issuer: issuer.sign(aud=None),
    "expired": lambda issuer: issuer.sign(exp=1),
    "no expiry": lambda issuer: issuer.sign(exp=None),
    "no subject": lambda issuer: issuer.sign(sub=None),
    "not yet valid": lambda issuer: issuer.sign(nbf=int(time.time()) + 3600),
    "garbage": lambda issuer: "a.b.c",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_bad_token_gets_a_challenge_and_then_an_error(
    running: BrokerThread, issuer: Issuer, forgery: str
) -> None:
    with Speaker(running.broker.stages.listening.listeners[0].port) as speaker:
        assert speaker.handshake(BEARER) == 0
        request = SaslAuthenticateRequest(auth_bytes=bearer(FORGERIES[forgery](issuer)))
        challenge = speaker.call(SASL_AUTHENTICATE, request)
        assert (challenge.error_code, json.loads(challenge.auth_bytes)) == (0, {"status": "invalid_token"})
        failed = speaker.token(b"\x01")
        assert failed is not None and failed[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert speaker.receive_raw() is None


def test_a_large_token_is_refused_before_it_is_looked_at(
    running: BrokerThread, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """490 KB took 111 to 140 ms of the event loop; twelve clients delayed others by seconds."""
    verified: list[tuple[int, str]] = []
    real = BearerTokens._identity

    def counted(self: BearerTokens, token: str) -> Identity:
        verified.append((len(token), threading.current_thread().name))
        return real(self, token)

    monkeypatch.setattr(BearerTokens, "_identity", counted)
    # Base64 makes a token a third larger: the smallest has 66 KB.
    for padding in (360_000, 70_000, 50_000):
        with Speaker(running.broker.stages.listening.listeners[0].port) as speaker:
            assert speaker.handshake(BEARER) == 0
            answer = speaker.token(bearer(issuer.sign(padding="x" * padding)))
            assert answer is not None and answer[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not verified
    with Client(running, bearer(issuer.sign(padding="x" * 40_000)), BEARER) as client:
        assert client.connection.session.principal.name == "eve"
    ((size, thread),) = verified
    assert 50_000 < size < 65_536
    assert thread.startswith("penstock-worker")
