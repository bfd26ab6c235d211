"""Connections to the brokers of one cluster, for clients that speak the protocol themselves.

The command line, the console, queues and backups share it. Each adds its own errors, retries and deadlines.
Errors are those of `Peer`: `PeerGone`, and `UnsupportedVersion` if a broker does not know an API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.model.addresses import Address
from penstock.net.client import Peer
from penstock.net.client_security import ClientSecurity
from penstock.net.peer_errors import PeerGone, PeerRefused, PeerRejected
from penstock.net.randomness import SystemRng
from penstock.ports import Rng
from penstock.wire.api import Api, RequestT, ResponseT
from penstock.wire.frames import MAX_FRAME_BYTES
from penstock.wire.routing import ClusterView

__all__ = ["ClusterClient"]

_RNG: Final = SystemRng()


class ClusterClient:
    """One connection to each broker. Owned by the thread of the event loop that runs requests."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        client_id: str,
        security: ClientSecurity | None = None,
        *,
        response_bytes_max: int = MAX_FRAME_BYTES,
        rng: Rng = _RNG,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` is called before each request, and raises if none may be sent."""
        self.bootstrap = tuple(bootstrap)
        self.view = ClusterView(self.bootstrap)
        #: the broker that has responded last
        self.contact: Address | None = None
        self._client_id = client_id
        self._security = security
        self._response_bytes_max = response_bytes_max
        self._rng = rng
        self._check = check
        self._peers: dict[Address, Peer] = {}

    def new_peer(self, address: Address, on_gone: Callable[[PeerGone], None] | None = None) -> Peer:
        """A connection of its own, which its owner closes."""
        return Peer(
            asyncio.get_running_loop(),
            *address,
            client_id=self._client_id,
            rng=self._rng,
            on_gone=on_gone,
            max_response_bytes=self._response_bytes_max,
            security=self._security,
        )

    def peer(self, address: Address) -> Peer:
        """The connection that all requests to this broker share."""
        self._check()
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = self.new_peer(address)
        return peer

    async def send_to(
        self,
        address: Address,
        api: Api[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float,
        *,
        answered: bool = True,
    ) -> ResponseT:
        """The response of one broker."""
        return await self.peer(address).send(api, request, timeout_s, answered=answered)

    async def send(
        self, api: Api[RequestT, ResponseT], request: RequestT, timeout_s: float, *, repeats: bool = True
    ) -> ResponseT:
        """The response of the broker that has responded last, or of the first other one that responds.

        Each broker has `timeout_s`. Without `repeats`, a request that may have been carried out is not sent
        again. Refused logins are not repeated.
        """
        failure: PeerGone | None = None
        for address in self.candidates():
            try:
                response = await self.send_to(address, api, request, timeout_s)
            except PeerRejected:
                raise
            except PeerGone as gone:
                if not repeats and not isinstance(gone, PeerRefused):
                    raise
                failure = gone
            else:
                self.contact = address
                return response
        assert failure is not None, "there is a bootstrap address"
        raise failure

    def candidates(self) -> list[Address]:
        """Addresses to try: the broker that has responded last, then the other known ones, then bootstrap."""
        contact = [] if self.contact is None else [self.contact]
        known = [(node.host, node.port) for node in self.view.nodes.values()]
        return list(dict.fromkeys([*contact, *known, *self.bootstrap]))

    def close(self) -> None:
        """Close the connections. Requests that wait for a response fail."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
