"""Connections to the internal listeners of other nodes, and whether their processes are alive.

One connection per node and purpose: answers come in the order of their requests, so what has to be quick must
not queue behind a long poll. A connection that ends is followed by a few quick attempts to connect: where all
are refused, nobody listens there any more, and the process is taken for gone. That is a hint, which spares a
timeout; whoever acts on it must be right even where it is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.net.client import Peer, PeerGone, PeerTimedOut, nobody_listens
from penstock.ports import Rng
from penstock.wire.backoff import Backoff

__all__ = ["Peers"]

#: when a process that may be gone is looked for again
_PROBES_S: Final = (0.0, 0.012, 0.025)
_PROBE_TIMEOUT_S: Final = 1.0
_BACKOFF_S: Final = (0.02, 0.25)


class Peers:
    """The other nodes of the cluster, as this one reaches them."""

    def __init__(
        self,
        node_id: int,
        rng: Rng,
        locate: Callable[[int], tuple[str, int] | None],
        gone: Callable[[int], None],
    ) -> None:
        self._client_id = f"node-{node_id}"
        self._rng = rng
        self._locate = locate
        self._gone = gone
        self._peers: dict[tuple[int, str], Peer] = {}
        # In order, so that a simulated end of all of them is the same every time.
        self._probes: dict[int, asyncio.Task[None]] = {}
        self._closed = False

    def get(self, node_id: int, purpose: str) -> Peer:
        """The connection to `node_id` for `purpose`; PeerGone where nobody knows the node's address."""
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
            )
        return peer

    def close(self) -> None:
        self._closed = True
        for peer in self._peers.values():
            peer.close()
        for probe in list(self._probes.values()):
            probe.cancel()

    def _lost(self, node_id: int, error: PeerGone) -> None:
        if not isinstance(error, PeerTimedOut):
            self.look_for(node_id)

    def look_for(self, node_id: int) -> None:
        """Find out whether the process of `node_id` is there; one search at a time."""
        address = self._locate(node_id)
        if address is None or self._closed or node_id in self._probes:
            return
        probe = asyncio.get_running_loop().create_task(self._probe(node_id, address))
        self._probes[node_id] = probe
        probe.add_done_callback(lambda _: self._probes.pop(node_id, None))

    async def _probe(self, node_id: int, address: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for at_s in _PROBES_S:
            await asyncio.sleep(max(0.0, began + at_s - loop.time()))
            try:
                async with asyncio.timeout(_PROBE_TIMEOUT_S):
                    transport, _ = await loop.create_connection(asyncio.Protocol, *address)
            except OSError as e:
                if nobody_listens(e):
                    continue
                return
            transport.close()
            return
        self._gone(node_id)
