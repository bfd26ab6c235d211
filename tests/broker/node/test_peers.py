"""Whether a process is there: refused connections say no, and so do those that are dropped at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from penstock.broker.base.system_ports import SystemRng
from penstock.broker.node.peers import Peers
from penstock.net.peer_errors import PeerTimedOut
from penstock.testing.clusters import reserve_port
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from tests.broker.nodes import HOST, eventually, run


class _Keeps(asyncio.Protocol):
    """A process that lives."""


class _Drops(asyncio.Protocol):
    """A process that is just ending."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class _Hangs(asyncio.Protocol):
    """A process that takes connections and says nothing."""

    def __init__(self, connected: set[_Hangs]) -> None:
        self._connected = connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connected.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connected.discard(self)


@pytest.fixture
def nobody() -> Iterator[tuple[str, int]]:
    """An address at which no process listens, and which no other test gets."""
    with reserve_port() as reserved:
        yield HOST, reserved.getsockname()[1]


def test_a_refused_connection_means_that_the_peer_is_gone(nobody: tuple[str, int]) -> None:
    async def main() -> None:
        gone: list[int] = []
        peers = Peers(1, SystemRng(), lambda node: nobody, gone.append)
        peers.probe(2)
        peers.probe(2)
        await eventually(lambda: bool(gone))
        assert gone == [2], "one search at a time"
        peers.close()

    run(main())


@pytest.mark.parametrize(("protocol", "lives"), [(_Keeps, True), (_Drops, False)])
def test_an_accepted_connection_means_that_the_peer_is_there(
    monkeypatch: pytest.MonkeyPatch, protocol: type[asyncio.Protocol], lives: bool
) -> None:
    if not lives:
        # However long it takes on this machine until the end of the connection is seen.
        monkeypatch.setattr("penstock.broker.node.peers._STAY_S", 10)

    async def main() -> None:
        gone: list[int] = []
        server = await asyncio.get_running_loop().create_server(protocol, HOST, 0)
        peers = Peers(1, SystemRng(), lambda node: server.sockets[0].getsockname(), gone.append)
        peers.probe(2)
        await eventually(lambda: not peers._probes)
        assert gone == ([] if lives else [2])
        peers.close()
        server.close()

    run(main())


def test_a_request_after_the_end_of_a_search_starts_another(nobody: tuple[str, int]) -> None:
    """A node that becomes the controller just then would not hear of the one that it missed."""

    async def main() -> None:
        gone: list[int] = []
        again = asyncio.Event()

        def hear(node: int) -> None:
            gone.append(node)
            if len(gone) == 1:
                peers.probe(node)
                again.set()

        peers = Peers(1, SystemRng(), lambda node: nobody, hear)
        peers.probe(2)
        await again.wait()
        await eventually(lambda: gone == [2, 2])
        peers.close()

    run(main())


def test_a_peer_with_an_overdue_response_and_no_sign_of_life_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A peer that is slow at its first request may only be slow."""

    async def main() -> None:
        connected: set[_Hangs] = set()
        server = await asyncio.get_running_loop().create_server(lambda: _Hangs(connected), HOST, 0)
        peers = Peers(1, SystemRng(), lambda node: server.sockets[0].getsockname(), lambda node: None, 70.0)
        await peers.confirm([2])
        assert peers.missing() == set()
        requesting = asyncio.ensure_future(peers.get(2, "test").send(API_VERSIONS, ApiVersionsRequest(), 30))
        await peers.confirm([2])
        assert peers.missing() == set(), "not for long yet"
        assert peers._silent_s > 70, "that long a fetch may wait for records"
        peers._silent_s = 0.05
        await peers.confirm([2])
        assert peers.missing() == {2}
        other = peers.get(2, "other")
        other.link_heard()
        assert peers._silent_for(2, other.heard_at) == 0, "it has said something"
        peers.close()
        server.close()
        await asyncio.gather(requesting, return_exceptions=True)
        await eventually(lambda: not connected)

    monkeypatch.setattr("penstock.broker.node.peers._SILENCE_S", 100)
    run(main())


def test_a_node_without_an_address() -> None:
    async def main() -> None:
        gone: list[int] = []
        peers = Peers(1, SystemRng(), lambda node: None, gone.append)
        peers.probe(2)
        with pytest.raises(PeerTimedOut):
            peers.get(2, "test")
        assert not gone and not peers._probes

    run(main())


def test_a_node_that_moved_is_found_at_its_new_address() -> None:
    async def main() -> None:
        ports = [7, 8]
        peers = Peers(1, SystemRng(), lambda node: (HOST, ports[0]), lambda node: None)
        first = peers.get(2, "test")
        assert peers.get(2, "test") is first and peers.get(2, "other") is not first
        ports.reverse()
        assert peers.get(2, "test").port == ports[0]
        peers.close()

    run(main())
