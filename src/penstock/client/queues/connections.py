"""Connections to the brokers of a cluster, and the client's view of it."""

from __future__ import annotations

import asyncio
import os
import random
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.client.errors import MisusedClient, NotReachable
from penstock.client.queues.refusals import refusal
from penstock.client.settings import security_of
from penstock.model.errors import ErrorCode, InvalidConfig, UnsupportedVersion
from penstock.net.client import Peer
from penstock.net.client_security import ClientSecurity, client_security
from penstock.net.peer_errors import PeerGone
from penstock.security.client_names import java_names
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from penstock.wire.backoff import Backoff
from penstock.wire.routing import Address, ClusterView, Reaction, reaction_to

__all__ = ["REQUEST_TIMEOUT_S", "Connections", "addresses_of", "security_from"]

REQUEST_TIMEOUT_S: Final = 30.0
_BACKOFF_FIRST_S: Final = 0.05
_BACKOFF_LIMIT_S: Final = 1.0
_GROUP: Final = 0
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)


class _Random:
    """The port for random numbers, from the system."""

    def token(self, size: int) -> bytes:
        return os.urandom(size)

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)


def addresses_of(bootstrap: str) -> list[Address]:
    """The addresses in a bootstrap string."""
    found = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise MisusedClient(f"bootstrap {address.strip()!r} is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found


def security_from(config: Mapping[str, Any]) -> ClientSecurity | None:
    """TLS and SASL from settings under librdkafka's names, or those of Java clients; None for plaintext."""
    given = security_of(config)
    oauth_cb = given.pop("oauth_cb", None)
    settings = java_names({name: str(value) for name, value in given.items()})
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    try:
        return client_security(
            protocol,
            settings.get,
            lambda: b64encode(os.urandom(24)).decode(),
            in_thread=asyncio.to_thread,
            oauth_cb=oauth_cb,
        )
    except InvalidConfig as e:
        raise MisusedClient(f"security settings of config=: {e}") from e


class Connections:
    """One connection to each broker for requests that are answered soon. A fetch has a connection of its own.

    Belongs to the event loop that runs when it is made.
    """

    def __init__(self, bootstrap: str, client_id: str, security: ClientSecurity | None) -> None:
        self.bootstrap = bootstrap
        self.view = ClusterView(addresses_of(bootstrap))
        self._client_id = client_id
        self._security = security
        self._loop = asyncio.get_running_loop()
        self._peers: dict[Address, Peer] = {}
        self._names: dict[bytes, str] = {}

    def new_peer(self, address: Address, on_gone: Callable[[PeerGone], None] | None = None) -> Peer:
        """A connection of its own, which its owner closes."""
        return Peer(
            self._loop,
            *address,
            client_id=self._client_id,
            rng=_Random(),
            on_gone=on_gone,
            security=self._security,
        )

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    async def send_to(
        self,
        address: Address,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> ResponseT:
        """The response of one broker. Raises `PeerGone`, or `Refused` if it does not know the API."""
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = self.new_peer(address)
        try:
            return await peer.send(api, request, timeout_s)
        except UnsupportedVersion as e:
            about = f"{peer.address} does not support {api.name}"
            raise refusal(ErrorCode.UNSUPPORTED_VERSION, None, about) from e

    async def send(
        self, api: Api[RequestT, ResponseT], request: RequestT, timeout_s: float | None
    ) -> ResponseT:
        """The response of the first broker that responds; `NotReachable` if none does in time."""
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_LIMIT_S)
        deadline = None if timeout_s is None else self._loop.time() + timeout_s
        while True:
            left_s = REQUEST_TIMEOUT_S if deadline is None else deadline - self._loop.time()
            try:
                return await self.send_to(
                    self.view.next_node(), api, request, max(0.01, min(left_s, REQUEST_TIMEOUT_S))
                )
            except PeerGone as e:
                wait_s = backoff.failed(random.uniform(-1.0, 1.0))
                if deadline is not None and self._loop.time() + wait_s >= deadline:
                    raise NotReachable(
                        f"no broker responded at {self.bootstrap} within {timeout_s:g} s ({e}). "
                        "Check that a broker listens there, or raise connect_timeout",
                        _TIMED_OUT,
                        retriable=True,
                    ) from e
            await asyncio.sleep(wait_s)

    async def refresh(self, topics: Iterable[str], timeout_s: float | None = REQUEST_TIMEOUT_S) -> None:
        """Update the view of the cluster. Topics are created if the brokers allow it."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
        response = await self.send(METADATA, request, timeout_s)
        self.view.update(response)
        self._names.update({topic.topic_id: topic.name for topic in response.topics if topic.name})
        for topic in response.topics:
            if topic.error_code and reaction_to(topic.error_code) is Reaction.FAIL:
                raise refusal(topic.error_code, None, f"topic {topic.name}")

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    async def coordinator(self, group: str) -> Address | None:
        """The address of a group's coordinator; None while there is none."""
        request = FindCoordinatorRequest(key=group, key_type=_GROUP, coordinator_keys=[group])
        response = await self.send(FIND_COORDINATOR, request, REQUEST_TIMEOUT_S)
        found = response.coordinators[0] if response.coordinators else response
        if not found.error_code:
            return found.host, found.port
        if reaction_to(found.error_code) is Reaction.FAIL:
            raise refusal(found.error_code, found.error_message, f"group {group}")
        return None
