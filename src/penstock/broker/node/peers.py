"""Connections to the internal listeners of other nodes, and whether their processes are alive.

There is one connection per node and purpose: responses arrive in the order of the requests, so an urgent
request must not queue behind a long poll. After a connection is lost, the node is probed with a few quick
connection attempts. If all are refused, the process counts as ended. That is a hint, which saves a timeout.
It may be wrong, so the code that acts on it must be correct in either case.

A node is `missing` while it is probed, and for a while after the probes have failed. Metadata responses do
not name a missing node as leader, so that clients refresh their metadata soon. A silent node is missing, too:
a response is overdue, nothing has arrived since, and a new request is not answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.net.client import Peer
from penstock.net.peer_errors import PeerGone, PeerTimedOut, is_refusal
from penstock.ports import Rng
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.backoff import Backoff

if TYPE_CHECKING:
    from penstock.net.client_security import ClientSecurity

__all__ = ["Peers"]

#: the times of the probes after a connection is lost
_PROBES_S: Final = (0.0, 0.012, 0.025)
_PROBE_TIMEOUT_S: Final = 1.0
#: a probe's connection that stays open this long was accepted by a live process
_STAY_S: Final = 0.01
#: how long a node is missing after its probes have failed; the next failed request probes it again
_MISSING_S: Final = 0.4
#: how long `confirm` waits for a response; hanging processes are detected by timeouts instead
_ANSWER_S: Final = 0.05
#: a response that takes longer means that the broker hangs or is cut off, unless a fetch may wait longer
_SILENT_S: Final = 0.75
#: how long a silent node is missing, unless it responds
_SILENCE_S: Final = 1.0
_GREETING: Final = ApiVersionsRequest(client_software_name="penstock", client_software_version="1")
_BACKOFF_S: Final = (0.02, 0.25)


class Peers:
    """The connections of this node to the other nodes of the cluster."""

    def __init__(
        self,
        node_id: int,
        rng: Rng,
        locate: Callable[[int], tuple[str, int] | None],
        gone: Callable[[int], None],
        longest_wait_s: float = 0.0,
        security: ClientSecurity | None = None,
    ) -> None:
        """`longest_wait_s` is the longest time that a fetch may wait for records.

        `security` has TLS and SASL of the internal listeners.
        """
        self._security = security
        self._silent_s = max(_SILENT_S, 1.5 * longest_wait_s)
        self._client_id = f"node-{node_id}"
        self._rng = rng
        self._locate = locate
        self._gone = gone
        self._peers: dict[tuple[int, str], Peer] = {}
        # In order, so that a simulated end of all of them is the same every time.
        self._probes: dict[int, asyncio.Task[None]] = {}
        #: the end of each node's missing time, by the event loop's clock
        self._not_found: dict[int, float] = {}
        self._closed = False

    def get(self, node_id: int, purpose: str) -> Peer:
        """The connection to `node_id` for `purpose`; PeerGone if the node's address is unknown."""
        address = self._locate(node_id)
        if address is None:
            raise PeerTimedOut(f"node {node_id} has no known address")
        peer = self._peers.get((node_id, purpose))
        if peer is None or (peer.host, peer.port) != address:
            if peer is not None:
                peer.close()
            peer = self._peers[node_id, purpose] = Peer(
                asyncio.get_running_loop(),
                *address,
                client_id=self._client_id,
                rng=self._rng,
                on_gone=lambda error: self._lost(node_id, error),
                backoff=Backoff(*_BACKOFF_S),
                security=self._security,
            )
        return peer

    def missing(self) -> set[int]:
        """The nodes whose processes may have ended."""
        if not self._probes and not self._not_found:
            return set()
        now = asyncio.get_running_loop().time()
        self._not_found = {node: until for node, until in self._not_found.items() if until > now}
        return {*self._probes, *self._not_found}

    async def confirm(self, nodes: Iterable[int]) -> None:
        """Send a request to each of `nodes`: it responds or becomes missing. Hanging nodes are not awaited.

        The connections of a process that ends are closed one after the other. So a client's request may
        arrive here before the loss of this node's own connection.
        """
        await asyncio.gather(*map(self._confirm, nodes))

    async def _confirm(self, node_id: int) -> None:
        # Only the arrival of a response matters. After a failure, `_lost` has handled the error.
        with suppress(PeerGone):
            await self.get(node_id, "pulse").send(API_VERSIONS, _GREETING, _ANSWER_S)
            self._not_found.pop(node_id, None)
            return
        now = asyncio.get_running_loop().time()
        if self._silent_for(node_id, now) >= self._silent_s:
            self._not_found[node_id] = now + _SILENCE_S

    def _silent_for(self, node_id: int, now: float) -> float:
        """How long nothing has arrived from a node with pending requests; 0 if there are none."""
        peers = [peer for (node, _), peer in self._peers.items() if node == node_id]
        since = [at for peer in peers if (at := peer.waits_since) is not None]
        return now - max(min(since), *(peer.heard_at for peer in peers)) if since else 0.0

    def end_if(self, refuses: Callable[[bytes], bool]) -> None:
        """Close the connections to nodes whose certificate in DER is refused now."""
        for peer in list(self._peers.values()):
            if peer.link is not None:
                peer.link.end_if(refuses)

    def close(self) -> None:
        self._closed = True
        for peer in self._peers.values():
            peer.close()
        for probe in list(self._probes.values()):
            probe.cancel()

    def _lost(self, node_id: int, error: PeerGone) -> None:
        if not isinstance(error, PeerTimedOut):
            self.probe(node_id)

    def probe(self, node_id: int) -> None:
        """Probe the process of `node_id`, unless a probe is in progress."""
        address = self._locate(node_id)
        if address is None or self._closed or node_id in self._probes:
            return
        self._probes[node_id] = asyncio.get_running_loop().create_task(self._probe(node_id, address))

    async def _probe(self, node_id: int, address: tuple[str, int]) -> None:
        try:
            lives = await _is_alive_at(address)
        finally:
            # Before the callback: from now on `probe` starts a new probe.
            del self._probes[node_id]
        if not lives:
            self._not_found[node_id] = asyncio.get_running_loop().time() + _MISSING_S
            self._gone(node_id)


async def _is_alive_at(address: tuple[str, int]) -> bool:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for at_s in _PROBES_S:
        await asyncio.sleep(max(0.0, began + at_s - loop.time()))
        if await _accepts_connections(address):
            return True
    return False


class _ProbeConnection(asyncio.Protocol):
    """The protocol of a probe: records whether the other side closes the connection."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()


async def _accepts_connections(address: tuple[str, int]) -> bool:
    """Whether a process accepts connections at `address`; true if that is uncertain."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            transport, visit = await loop.create_connection(_ProbeConnection, *address)
    except OSError as e:
        return not is_refusal(e)
    # A process that is ending may have accepted the connection: it then closes it with the others.
    try:
        async with asyncio.timeout(_STAY_S):
            await visit.over.wait()
    except TimeoutError:
        return True
    finally:
        transport.close()
    return False
