"""Brokers over blocking sockets: the shell around the sans-IO `Conversation` of readers.

A worker runs one task at a time in one thread, so a `Cluster` is used by one caller at a time. Connections
stay open for the next task. A connection with a request in flight at the end of a task is closed, because the
response would reach the next task.
"""

from __future__ import annotations

import random
import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from penstock.model.errors import ApiError, ErrorCode, InvalidConfig, ProtocolError
from penstock.net.peer_errors import PeerGone, PeerLost, PeerRefused, PeerRejected, is_refusal
from penstock.ports import Buffer
from penstock.security.client_names import SECURITY_PREFIXES, java_names, librdkafka_names
from penstock.security.mechanisms import uses_tokens
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.backoff import Backoff
from penstock.wire.compiler import Part
from penstock.wire.conversation import Conversation, LoginRejected
from penstock.wire.routing import Address, ClusterView, Reaction, reaction_to

if TYPE_CHECKING:
    from penstock.net.client_security import ClientSecurity

__all__ = [
    "Attempts",
    "Cluster",
    "Connection",
    "Endpoint",
    "Security",
    "close_clusters",
    "cluster_of",
    "librdkafka_settings",
    "security_of",
]

_BACKOFF_FIRST_S: Final = 0.05
_BACKOFF_LIMIT_S: Final = 1.0
#: How long a topic may be unknown, right after it was made, before we believe that there is none.
_UNKNOWN_TOPIC_S: Final = 1.0
#: the part of a session's lifetime after which a connection is not used again
_SESSION_SHARE: Final = 0.8
#: More than one query uses; beyond that we start over.
_CLUSTERS_MAX: Final = 16
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Security:
    """The security settings of a client, by the names of Java clients. They are pickled for the workers."""

    protocol: str
    settings: tuple[tuple[str, str], ...] = field(repr=False)

    def open(self) -> ClientSecurity:
        """TLS and login; InvalidConfig if a file cannot be read or a setting is missing."""
        from penstock.net.client_security import client_security  # only a secured cluster pays for OpenSSL

        made = client_security(self.protocol, dict(self.settings).get)
        assert made is not None, "plaintext has no security"
        return made


def security_of(settings: Mapping[str, str]) -> Security | None:
    """TLS and SASL of connections, by the names of Java clients or of librdkafka; None for plaintext.

    InvalidConfig if a setting is wrong or a file cannot be read.
    """
    named = {key: value for key, value in settings.items() if key.startswith(SECURITY_PREFIXES)}
    protocol = named.pop("security.protocol", "PLAINTEXT").strip().upper()
    if protocol == "PLAINTEXT":
        return None
    if protocol not in _PROTOCOLS:
        raise InvalidConfig(f"security.protocol must be one of {', '.join(_PROTOCOLS)}, not {protocol}")
    security = Security(protocol, tuple(sorted(java_names(named).items())))
    try:
        security.open()
    except InvalidConfig as e:
        raise InvalidConfig(f"security.protocol={protocol}: {e}") from e
    return security


def librdkafka_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Client configs under librdkafka's names; they can be pickled. InvalidConfig if one is malformed."""
    if not uses_tokens(settings.get("sasl.mechanism")):
        return dict(librdkafka_names(settings))
    from penstock.net.client_security import librdkafka_security

    return librdkafka_security(settings)


@cache
def _opened(security: Security) -> ClientSecurity:
    """One TLS context for all connections of a process."""
    return security.open()


class Endpoint(NamedTuple):
    """How a cluster is reached."""

    bootstrap: tuple[Address, ...]
    client_id: str = "penstock-spark"
    #: for one answer, and for all tries of one question
    request_timeout_s: float = 30.0
    total_timeout_s: float = 60.0
    security: Security | None = None


class Attempts:
    """Tries that get further apart, until their time is up."""

    __slots__ = ("_backoff", "_deadline_s", "_limit_s")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_LIMIT_S)
        self._deadline_s = time.monotonic() + limit_s

    def failed(self, error: Exception) -> None:
        """Wait for the next try; raise `error` where there is no time for one."""
        wait_s = self._backoff.failed(random.uniform(-1.0, 1.0))
        if time.monotonic() + wait_s > self._deadline_s:
            raise error
        time.sleep(wait_s)

    def succeeded(self) -> None:
        """Start over: there was progress."""
        self._backoff.succeeded()
        self._deadline_s = time.monotonic() + self._limit_s


class Connection:
    """One broker. Any failure closes it and is a `PeerGone`."""

    __slots__ = ("_arrived", "_conversation", "_ends_at", "_security", "_socket", "address")

    def __init__(self, address: Address, client_id: str, security: Security | None = None) -> None:
        self.address = address
        self._security = None if security is None else _opened(security)
        login = None if self._security is None else self._security.login
        self._conversation = Conversation(client_id, login=login)
        #: when the session is about to end
        self._ends_at = inf
        self._socket: socket.socket | None = None
        self._arrived: deque[Any] = deque()

    def open(self, timeout_s: float) -> None:
        """Connect, and learn the API versions of the broker."""
        try:
            self._socket = socket.create_connection(self.address, timeout_s)
        except OSError as e:
            raise self._lost(f"cannot connect: {e}", PeerRefused if is_refusal(e) else PeerLost) from e
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._security is not None and self._security.tls is not None:
            try:
                context = self._security.tls.context()
                self._socket = context.wrap_socket(self._socket, server_hostname=self.address[0])
            except OSError as e:
                raise self._lost(f"TLS handshake failed: {e}") from e
        while not self._conversation.is_ready:
            self._transmit(self._conversation.handshake())
            self._listen()
        if self._conversation.session_lifetime_s:
            # A new connection is simpler than another authentication (KIP-368) in the middle of a task.
            self._ends_at = time.monotonic() + _SESSION_SHARE * self._conversation.session_lifetime_s

    @property
    def is_idle(self) -> bool:
        """Whether it is open, its session lasts, and nothing is under way on it."""
        return (
            self._socket is not None
            and not self._conversation.in_flight
            and not self._arrived
            and time.monotonic() < self._ends_at
        )

    def send(self, api: Api[RequestT, Any], request: RequestT) -> None:
        """Send a request without waiting; `receive` returns the responses in the order of the requests."""
        self._transmit(self._conversation.request(api, request)[1])

    def receive(self) -> Any:
        """The next answer."""
        while not self._arrived:
            self._listen()
        return self._arrived.popleft()

    def call(self, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        assert self.is_idle, "the response to another request is under way"
        self.send(api, request)
        return cast(ResponseT, self.receive())

    def close(self) -> None:
        """Closing twice is harmless."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _transmit(self, parts: list[Part]) -> None:
        if self._socket is None:
            raise self._lost("closed")
        try:
            self._socket.sendall(b"".join(cast("list[Buffer]", parts)))
        except OSError as e:
            raise self._lost(f"cannot send: {e}") from e

    def _listen(self) -> None:
        if self._socket is None:
            raise self._lost("closed")
        try:
            size = self._socket.recv_into(self._conversation.get_buffer())
            if size == 0:
                raise self._lost("the broker closed the connection")
            self._arrived.extend(answer.message for answer in self._conversation.received(size))
        except LoginRejected as e:
            raise self._lost(f"no response: {e}", PeerRejected) from e
        except (OSError, ProtocolError) as e:
            raise self._lost(f"no response: {e}") from e

    def _lost(self, reason: str, kind: type[PeerGone] = PeerLost) -> PeerGone:
        self.close()
        host, port = self.address
        return kind(f"{host}:{port}: {reason}")


class Cluster:
    """Connections to the brokers of a cluster, and the leaders of its partitions."""

    __slots__ = ("_connections", "endpoint", "view")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.view = ClusterView(endpoint.bootstrap)
        self._connections: dict[Address, Connection] = {}

    def connection(self, address: Address) -> Connection:
        """An open connection that nothing is under way on."""
        known = self._connections.get(address)
        if known is not None:
            if known.is_idle:
                return known
            known.close()
        made = self._connections[address] = Connection(
            address, self.endpoint.client_id, self.endpoint.security
        )
        made.open(self.endpoint.request_timeout_s)
        return made

    def leader(self, topic: str, partition: int) -> Address:
        """The connection to the leader of a partition; an ApiError while it has none."""
        node = self.view.leader_node(topic, partition)
        if node is None:
            self.refresh([topic])
            node = self.view.leader_node(topic, partition)
        if partition >= self.view.partitions(topic):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}")
        if node is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no known leader")
        return node.host, node.port

    def call(self, address: Address, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        return self.connection(address).call(api, request)

    def refresh(self, topics: Iterable[str] | None, attempts: Attempts | None = None) -> MetadataResponse:
        """Request metadata of `topics`, or all, from any broker; retries unknown topics for a moment.

        `attempts` are those of the caller, whose time is not extended.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        attempts = attempts or Attempts(self.endpoint.total_timeout_s)
        patience = time.monotonic() + _UNKNOWN_TOPIC_S
        while True:
            try:
                response = self.call(self.view.next_node(), METADATA, request)
            except PeerGone as e:
                # all known brokers may be gone: try the bootstrap servers next
                self.view.nodes.clear()
                attempts.failed(e)
                continue
            self.view.update(response, all_topics=topics is None)
            unsettled = [topic for topic in response.topics if not _is_settled(topic.error_code)]
            if not unsettled or time.monotonic() > patience:
                return response
            code = ErrorCode(unsettled[0].error_code)
            attempts.failed(ApiError(code, f"{unsettled[0].name}: {code.name}"))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()


def _is_settled(error_code: int) -> bool:
    return reaction_to(error_code) in (Reaction.NONE, Reaction.FAIL)


_clusters: Final[dict[Endpoint, Cluster]] = {}


def cluster_of(endpoint: Endpoint) -> Cluster:
    """The one `Cluster` of this process for `endpoint`: tasks that follow each other share connections."""
    cluster = _clusters.get(endpoint)
    if cluster is None:
        if len(_clusters) >= _CLUSTERS_MAX:
            close_clusters()
        cluster = _clusters[endpoint] = Cluster(endpoint)
    return cluster


def close_clusters() -> None:
    """Close all connections of this process; the next read connects again."""
    for cluster in _clusters.values():
        cluster.close()
    _clusters.clear()
