"""Connections to the internal listeners of other nodes, and whether their processes are alive.

One connection per node and purpose: answers come in the order of their requests, so what has to be quick must
not queue behind a long poll. A connection that ends is followed by a few quick attempts to connect: where all
are refused, nobody listens there any more, and the process is taken for gone. That is a hint, which spares a
timeout; whoever acts on it must be right even where it is wrong.

While a process is looked for, and for a while after it was not found, it is `missing`: clients had better ask
again soon than believe that it leads. So is one that is silent: it owes an answer for long, has sent nothing
since, and does not answer now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from penstock.net.client import Peer, PeerGone, PeerTimedOut, nobody_listens
from penstock.ports import Rng
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.backoff import Backoff

__all__ = ["Peers"]

#: when a process that may be gone is looked for again
_PROBES_S: Final = (0.0, 0.012, 0.025)
_PROBE_TIMEOUT_S: Final = 1.0
#: a connection that lives for this long was taken by somebody who lives
_STAY_S: Final = 0.01
#: for how long one that was not found is missing; who needs it and does not reach it has it looked for again
_MISSING_S: Final = 0.4
#: how long the answer of a process may take that is to be confirmed alive: a hang is for timeouts to find
_ANSWER_S: Final = 0.05
#: an answer that takes longer comes from a broker that hangs, or is cut off, unless a fetch may wait longer
_SILENT_S: Final = 0.75
#: for how long one that was found silent is missing, unless it answers
_SILENCE_S: Final = 1.0
_GREETING: Final = ApiVersionsRequest(client_software_name="penstock", client_software_version="1")
_BACKOFF_S: Final = (0.02, 0.25)


class Peers:
    """The other nodes of the cluster, as this one reaches them."""

    def __init__(
        self,
        node_id: int,
        rng: Rng,
        locate: Callable[[int], tuple[str, int] | None],
        gone: Callable[[int], None],
        longest_wait_s: float = 0.0,
    ) -> None:
        """`longest_wait_s`: how long one may have a request wait for something to tell."""
        self._silent_s = max(_SILENT_S, 1.5 * longest_wait_s)
        self._client_id = f"node-{node_id}"
        self._rng = rng
        self._locate = locate
        self._gone = gone
        self._peers: dict[tuple[int, str], Peer] = {}
        # In order, so that a simulated end of all of them is the same every time.
        self._probes: dict[int, asyncio.Task[None]] = {}
        #: until when those that were not found are missing, by the loop's time
        self._not_found: dict[int, float] = {}
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

    def missing(self) -> set[int]:
        """The nodes whose processes may be gone."""
        if not self._probes and not self._not_found:
            return set()
        now = asyncio.get_running_loop().time()
        self._not_found = {node: until for node, until in self._not_found.items() if until > now}
        return {*self._probes, *self._not_found}

    async def confirm(self, nodes: Iterable[int]) -> None:
        """Have each of `nodes` answer, or be found missing; one that hangs is not waited for.

        A process that dies closes its connections one after the other, so a client may be here with questions
        before this node has heard of the death.
        """
        await asyncio.gather(*map(self._confirm, nodes))

    async def _confirm(self, node_id: int) -> None:
        # Whether it answers is all that matters: if it does not, `_lost` has heard why.
        with suppress(PeerGone):
            await self.get(node_id, "pulse").send(API_VERSIONS, _GREETING, _ANSWER_S)
            self._not_found.pop(node_id, None)
            return
        now = asyncio.get_running_loop().time()
        if self._silent_for(node_id, now) >= self._silent_s:
            self._not_found[node_id] = now + _SILENCE_S

    def _silent_for(self, node_id: int, now: float) -> float:
        """How long nothing has come from a node that owes an answer; 0 if it owes none."""
        peers = [peer for (node, _), peer in self._peers.items() if node == node_id]
        since = [asked for peer in peers if (asked := peer.waits_since) is not None]
        return now - max(min(since), *(peer.heard_at for peer in peers)) if since else 0.0

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
        self._probes[node_id] = asyncio.get_running_loop().create_task(self._probe(node_id, address))

    async def _probe(self, node_id: int, address: tuple[str, int]) -> None:
        try:
            lives = await _lives_at(address)
        finally:
            # Before anybody is told: who asks from now on gets a search of their own.
            del self._probes[node_id]
        if not lives:
            self._not_found[node_id] = asyncio.get_running_loop().time() + _MISSING_S
            self._gone(node_id)


async def _lives_at(address: tuple[str, int]) -> bool:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for at_s in _PROBES_S:
        await asyncio.sleep(max(0.0, began + at_s - loop.time()))
        if await _somebody_is_at(address):
            return True
    return False


class _Visit(asyncio.Protocol):
    """A connection that only shows whether somebody keeps it."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()


async def _somebody_is_at(address: tuple[str, int]) -> bool:
    """Whether a process is there; where that cannot be told, as if it were."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            transport, visit = await loop.create_connection(_Visit, *address)
    except OSError as e:
        return not nobody_listens(e)
    # A process that is just ending may still have taken the connection: it drops it with the others.
    try:
        async with asyncio.timeout(_STAY_S):
            await visit.over.wait()
    except TimeoutError:
        return True
    finally:
        transport.close()
    return False
