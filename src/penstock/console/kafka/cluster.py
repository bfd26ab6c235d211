"""Connections to the brokers of one cluster, in the name of one user.

Any broker forwards requests for the controller, so `send` uses the broker that has responded last. A request
that only reads is repeated on another broker. A request that changes something is repeated only if it was
never sent.

Invariant: brokers check a login that they have refused only once. Why: they count failures by address, and
all users of the console have the same one.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.console.views.knowledge import REFUSED, UNKNOWN, Gap, in_words
from penstock.model.errors import ErrorCode, PenstockError, UnsupportedVersion
from penstock.net.client_security import ClientSecurity
from penstock.net.cluster_client import ClusterClient
from penstock.net.peer_errors import PeerGone, PeerRefused, PeerRejected
from penstock.security.console_visitors import CONSOLE_CLIENT_ID
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.routing import GROUP, TRANSACTION, Address, coordinator_in, coordinator_request

__all__ = [
    "GROUP",
    "TRANSACTION",
    "Closed",
    "Cluster",
    "NotReachable",
    "Refused",
    "Rejected",
    "check",
    "gap_of_error",
]

_TIMEOUT_S: Final = 5.0
#: brokers that fetch a large batch may take longer
RESPONSE_BYTES_MAX: Final = 64 << 20


class Refused(PenstockError):
    """A broker has refused a request; `name` is Kafka's name of the error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class NotReachable(PenstockError):
    """No broker has responded. `reason` leaves out which one."""

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = message if reason is None else reason


class Rejected(NotReachable):
    """The brokers do not accept the login of these connections."""


class Closed(PenstockError):
    """The connections were closed, because the session of their user has ended."""


def check(code: int, message: str | None, about: str) -> None:
    """Raise Refused `about` something unless `code` is NONE."""
    if code:
        try:
            name = ErrorCode(code).name
        except ValueError:
            name = f"ERROR_{code}"
        raise Refused(name, f"{about}: {message or in_words(code)}")


def gap_of_error(error: Refused | NotReachable) -> Gap:
    """What a failed request leaves unknown."""
    if isinstance(error, NotReachable):
        return Gap(UNKNOWN, error.reason)
    return Gap(REFUSED if error.name.endswith("AUTHORIZATION_FAILED") else UNKNOWN, str(error))


class Cluster:
    """A cluster as one user sees it. Owned by the thread of the event loop."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        security: ClientSecurity | None = None,
        timeout_s: float = _TIMEOUT_S,
        client_id: str = CONSOLE_CLIENT_ID,
    ) -> None:
        self._settings = bootstrap, security, timeout_s, client_id
        self.timeout_s = timeout_s
        self._client = ClusterClient(
            bootstrap, client_id, security, response_bytes_max=RESPONSE_BYTES_MAX, check=self._check
        )
        #: what a broker said when it refused the login; shared with siblings
        self._rejections: list[str] = []
        self._siblings: weakref.WeakSet[Cluster] = weakref.WeakSet()
        self.closed = False

    @property
    def nodes(self) -> dict[int, Address]:
        """Addresses of brokers by id, from the last Metadata response."""
        return {node.id: (node.host, node.port) for node in self._client.view.nodes.values()}

    @property
    def is_rejected(self) -> bool:
        """Whether the login of these connections was refused: it is not tried again."""
        return bool(self._rejections)

    def _reject(self, reason: PeerRejected) -> Rejected:
        self._rejections[:] = [str(reason)]
        return Rejected(str(reason))

    async def send(
        self, api: Api[RequestT, ResponseT], request: RequestT, *, changes: bool = False
    ) -> ResponseT:
        """The response of any broker."""
        try:
            return await self._client.send(api, request, self.timeout_s, repeats=not changes)
        except PeerRejected as rejected:
            raise self._reject(rejected) from rejected
        except PeerGone as gone:
            doubt = "; the request may have been carried out"
            raise NotReachable(
                f"{gone}{doubt if changes and not isinstance(gone, PeerRefused) else ''}"
            ) from gone
        except UnsupportedVersion as error:
            raise Refused("UNSUPPORTED_VERSION", f"the cluster does not support {api.name}") from error

    def check(self, code: int, message: str | None, about: str) -> None:
        """Raise Refused `about` something unless `code` is NONE."""
        check(code, message, about)

    async def send_to(
        self,
        node: int,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None = None,
        answered: bool = True,
    ) -> ResponseT:
        """The response of one broker."""
        address = self._client.view.address(node)
        if address is None:
            await self.metadata([])
            address = self._client.view.address(node)
        if address is None:
            raise NotReachable(f"broker {node} is not in the cluster now")
        try:
            wait_s = timeout_s or self.timeout_s
            return await self._client.send_to(address, api, request, wait_s, answered=answered)
        except PeerRejected as rejected:
            raise self._reject(rejected) from rejected
        except PeerGone as gone:
            raise NotReachable(f"broker {node}: {gone}", str(gone)) from gone
        except UnsupportedVersion as error:
            raise Refused("UNSUPPORTED_VERSION", f"broker {node} does not support {api.name}") from error

    async def send_at(self, address: Address, api: Api[RequestT, ResponseT], request: RequestT) -> ResponseT:
        """The response of an address that is no broker's listener for clients, such as a controller's."""
        try:
            return await self._client.send_to(address, api, request, self.timeout_s)
        except PeerGone as gone:
            raise NotReachable(f"{address[0]}:{address[1]}: {gone}") from gone
        except UnsupportedVersion as error:
            raise Refused("UNSUPPORTED_VERSION", f"{address[0]}:{address[1]} has no {api.name}") from error

    async def send_each(
        self, api: Api[RequestT, ResponseT], requests: dict[int, RequestT]
    ) -> dict[int, ResponseT | None]:
        """The responses of several brokers to concurrent requests; None for one that has not responded."""
        found = await self.try_each(api, requests)
        return {node: None if isinstance(each, PenstockError) else each for node, each in found.items()}

    async def try_each(
        self, api: Api[RequestT, ResponseT], requests: dict[int, RequestT]
    ) -> dict[int, ResponseT | NotReachable | Refused]:
        """The responses of several brokers to concurrent requests, or the reason why there is none."""

        async def one(node: int, request: RequestT) -> ResponseT | NotReachable | Refused:
            try:
                return await self.send_to(node, api, request)
            except (NotReachable, Refused) as error:
                return error

        found = await asyncio.gather(*(one(node, request) for node, request in requests.items()))
        return dict(zip(requests, found, strict=True))

    async def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Brokers, and partitions of some topics (of all by default). Never creates a topic."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response = await self.send(METADATA, MetadataRequest(topics=named, allow_auto_topic_creation=False))
        self._client.view.update_brokers(response)
        return response

    async def coordinator(self, key: str, kind: int = GROUP) -> int:
        """The broker that coordinates a group or a transactional id."""
        found = coordinator_in(await self.send(FIND_COORDINATOR, coordinator_request(key, kind)))
        check(found.error_code, found.error_message, key)
        return found.node_id

    def sibling(self) -> Cluster:
        """The same cluster and user over connections of its own.

        Why: a broker responds in order, so a fetch that waits for records holds up its connection.
        """
        other = Cluster(*self._settings)
        other._rejections = self._rejections
        other._client.view.nodes, other._client.contact = self._client.view.nodes, self._client.contact
        other.closed = self.closed
        self._siblings.add(other)
        return other

    def close(self) -> None:
        """Close the connections, and those of siblings. Requests raise Closed from now on."""
        self.closed = True
        for sibling in list(self._siblings):
            sibling.close()
        self._client.close()

    def _check(self) -> None:
        if self.closed:
            raise Closed("the session has ended: log in again")
        if self._rejections:
            raise Rejected(self._rejections[0])
