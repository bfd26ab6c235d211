"""Connections to the brokers of one cluster, in the name of one user.

Any broker forwards requests for the controller, so `send` uses the broker that has responded last. A request
that only reads is repeated on another broker. A request that changes something is repeated only if it was
never sent.
"""

from __future__ import annotations

import asyncio
import os
import random
import weakref
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.model.errors import ErrorCode, PenstockError, UnsupportedVersion
from penstock.net.client import Peer
from penstock.net.client_security import ClientSecurity
from penstock.net.peer_errors import PeerGone, PeerRefused
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.routing import Address

__all__ = ["GROUP", "TRANSACTION", "Closed", "Cluster", "NotReachable", "Refused", "check", "parse_bootstrap"]

_TIMEOUT_S: Final = 5.0
#: brokers that fetch a large batch may take longer
RESPONSE_BYTES_MAX: Final = 64 << 20
GROUP: Final = 0
TRANSACTION: Final = 1


class Refused(PenstockError):
    """A broker has refused a request; `name` is Kafka's name of the error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class NotReachable(PenstockError):
    """No broker has responded."""


class Closed(PenstockError):
    """The connections were closed, because the session of their user has ended."""


def check(code: int, message: str | None, about: str) -> None:
    """Raise Refused `about` something unless `code` is NONE."""
    if code:
        try:
            name = ErrorCode(code).name
        except ValueError:
            name = f"ERROR_{code}"
        raise Refused(name, f"{about}: {message or name}")


def parse_bootstrap(text: str) -> list[Address]:
    """Addresses of `HOST:PORT,HOST:PORT`."""
    found = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        found.append((host.strip("[]"), int(port)))
    return found


class _SystemRng:
    """The port of random numbers that a `Peer` uses."""

    def token(self, size: int) -> bytes:
        return os.urandom(size)

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)


class Cluster:
    """A cluster as one user sees it. Owned by the thread of the event loop."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        security: ClientSecurity | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._security = security
        self.timeout_s = timeout_s
        #: addresses of brokers by id, from the last Metadata response
        self.nodes: dict[int, Address] = {}
        self._peers: dict[Address, Peer] = {}
        self._contact: Address | None = None
        self._siblings: weakref.WeakSet[Cluster] = weakref.WeakSet()
        self.closed = False

    async def send(
        self, api: Api[RequestT, ResponseT], request: RequestT, *, changes: bool = False
    ) -> ResponseT:
        """The response of any broker."""
        last: PenstockError = NotReachable("no broker is known")
        for address in self._candidates():
            try:
                response = await self._peer(address).send(api, request, self.timeout_s)
            except PeerGone as gone:
                if changes and not isinstance(gone, PeerRefused):
                    raise NotReachable(f"{gone}; the request may have been carried out") from gone
                last = NotReachable(str(gone))
                continue
            except UnsupportedVersion as error:
                raise Refused("UNSUPPORTED_VERSION", f"the cluster does not support {api.name}") from error
            self._contact = address
            return response
        raise last

    async def send_to(
        self,
        node: int,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None = None,
        answered: bool = True,
    ) -> ResponseT:
        """The response of one broker."""
        if node not in self.nodes:
            await self.metadata([])
        if node not in self.nodes:
            raise NotReachable(f"broker {node} is not in the cluster now")
        peer = self._peer(self.nodes[node])
        try:
            return await peer.send(api, request, timeout_s or self.timeout_s, answered=answered)
        except PeerGone as gone:
            raise NotReachable(f"broker {node}: {gone}") from gone
        except UnsupportedVersion as error:
            raise Refused("UNSUPPORTED_VERSION", f"broker {node} does not support {api.name}") from error

    async def send_at(self, address: Address, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """The response of an address that is no broker's listener for clients, such as a controller's."""
        try:
            return await self._peer(address).send(api, request, self.timeout_s)
        except PeerGone as gone:
            raise NotReachable(f"{address[0]}:{address[1]}: {gone}") from gone
        except UnsupportedVersion as error:
            raise Refused("UNSUPPORTED_VERSION", f"{address[0]}:{address[1]} has no {api.name}") from error

    async def send_each(
        self, api: Api[RequestT, ResponseT], requests: dict[int, RequestT]
    ) -> dict[int, ResponseT | None]:
        """The responses of several brokers to concurrent requests; None for one that has not responded."""

        async def one(node: int, request: RequestT) -> ResponseT | None:
            try:
                return await self.send_to(node, api, request)
            except (NotReachable, Refused):
                return None

        found = await asyncio.gather(*(one(node, request) for node, request in requests.items()))
        return dict(zip(requests, found, strict=True))

    async def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Brokers, and partitions of some topics (of all by default). Never creates a topic."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response = await self.send(METADATA, MetadataRequest(topics=named, allow_auto_topic_creation=False))
        self.nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        return response

    async def coordinator(self, key: str, kind: int = GROUP) -> int:
        """The broker that coordinates a group or a transactional id."""
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        response = await self.send(FIND_COORDINATOR, request)
        if response.coordinators:
            found = response.coordinators[0]
            check(found.error_code, found.error_message, key)
            return found.node_id
        check(response.error_code, response.error_message, key)
        return response.node_id

    def sibling(self) -> Cluster:
        """The same cluster and user over connections of its own.

        Why: a broker responds in order, so a fetch that waits for records holds up its connection.
        """
        other = Cluster(self._bootstrap, self._security, self.timeout_s)
        other.nodes, other._contact, other.closed = dict(self.nodes), self._contact, self.closed
        self._siblings.add(other)
        return other

    def close(self) -> None:
        """Close the connections, and those of siblings. Requests raise Closed from now on."""
        self.closed = True
        for sibling in list(self._siblings):
            sibling.close()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _candidates(self) -> list[Address]:
        """Addresses to try: the last one that has responded, then the others."""
        known = [*self.nodes.values(), *self._bootstrap]
        return list(dict.fromkeys([*([self._contact] if self._contact else []), *known]))

    def _peer(self, address: Address) -> Peer:
        if self.closed:
            raise Closed("the session has ended: log in again")
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(
                asyncio.get_running_loop(),
                *address,
                client_id="penstock-console",
                rng=_SystemRng(),
                max_response_bytes=RESPONSE_BYTES_MAX,
                security=self._security,
            )
        return peer
