"""Unsent responses of a client: over all of its connections, and with no effect on other clients."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from penstock.model.errors import ProtocolError
from penstock.net.output import HIGH_WATER, Output
from penstock.net.turns import Turns
from penstock.net.unsent import LEAST_HIGH_WATER, UnsentResponses

LIMIT = 100
#: tasks that wait for their turn
_TASKS: list[asyncio.Future[None]] = []


class Peer:
    def __init__(self, owner: str, address: str = "") -> None:
        self.owner = owner
        self.address = address
        self.closed = False


class Limited:
    """An output that only has a limit."""

    def __init__(self) -> None:
        self.high_water = HIGH_WATER

    def limit(self, high_water: int) -> None:
        self.high_water = high_water


async def _turns_of(turns: Turns, *owners: str) -> list[str]:
    """The owners whose large requests get a turn now."""
    found: list[str] = []

    async def large(peer: Peer) -> None:
        await turns.large_turn(peer)
        found.append(peer.owner)

    for owner in owners:
        _TASKS.append(asyncio.ensure_future(large(Peer(owner))))
    for _ in range(4 * len(owners) + 4):
        await asyncio.sleep(0)
    return found


def test_a_client_that_does_not_read_gets_no_turn() -> None:
    async def main() -> None:
        turns = Turns()
        unsent = UnsentResponses(turns, LIMIT)
        first, second = Peer("a"), Peer("a")
        unsent.changed(first, LIMIT)
        assert await _turns_of(turns, "a", "b") == ["a", "b"]
        unsent.changed(second, 1)
        assert await _turns_of(turns, "a", "b") == ["b"]
        assert len(turns) == 1
        unsent.changed(first, 0)
        await asyncio.sleep(0)
        assert await _turns_of(turns, "a", "b") == ["a", "b"]
        assert len(turns) == 0

    asyncio.run(main())


def test_a_client_gets_no_turn_that_its_requests_waited_for() -> None:
    """36 requests waited for their last slice when one response exceeded the limit: 36 were written."""

    async def main() -> None:
        turns = Turns()
        unsent = UnsentResponses(turns, LIMIT)
        answered: list[Peer] = []

        async def large(peer: Peer) -> None:
            await turns.large_turn(peer)
            answered.append(peer)
            unsent.changed(peer, LIMIT + 1)

        tasks = [asyncio.ensure_future(large(Peer("a"))) for _ in range(3)]
        for number in range(1, 4):
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(answered) == number
            unsent.changed(answered[-1], 0)
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_bytes_are_those_of_the_principal_at_that_time() -> None:
    """A connection may authenticate again as another principal."""

    async def main() -> None:
        turns = Turns()
        unsent = UnsentResponses(turns, LIMIT)
        peer = Peer("a")
        unsent.changed(peer, LIMIT + 1)
        peer.owner = "b"
        assert await _turns_of(turns, "a", "b") == ["b"]
        unsent.changed(peer, 0)
        assert await _turns_of(turns, "c") == ["a", "c"][1:]
        assert len(turns) == 0

    asyncio.run(main())


def test_small_requests_of_a_client_that_does_not_read_go_on() -> None:
    """A consumer that is slow to read its records can still commit its offsets."""

    async def main() -> None:
        turns = Turns()
        UnsentResponses(turns, LIMIT).changed(Peer("a"), LIMIT + 1)
        served: list[str] = []
        turns.wait("a", lambda: served.append("pipelined"))
        await asyncio.wait_for(turns.turn(Peer("a")), 10)
        assert served == ["pipelined"]

    asyncio.run(main())


def test_large_requests_of_closed_connections_do_not_wait() -> None:
    """A client could hold the memory of one large request after the other, by closing its connections."""

    async def main() -> None:
        turns = Turns()
        unsent, peer = UnsentResponses(turns, LIMIT), Peer("a")
        unsent.changed(Peer("a"), LIMIT + 1)
        waiting = asyncio.ensure_future(turns.large_turn(peer))
        for _ in range(4):
            await asyncio.sleep(0)
        assert not turns._waiting
        assert len(turns) == 1
        peer.closed = True
        unsent.forget(peer)
        with pytest.raises(ProtocolError):
            await asyncio.wait_for(waiting, 10)
        assert len(turns) == 0

    asyncio.run(main())


def _opened(unsent: UnsentResponses, address: str, number: int) -> list[tuple[Peer, Limited]]:
    found = [(Peer("a", address), Limited()) for _ in range(number)]
    for peer, output in found:
        unsent.opened(peer, cast(Output, output))
    return found


def test_connections_of_an_address_share_its_limit() -> None:
    """Each could have a mebibyte unsent that did not count: 900 MB of 1,000 connections."""
    unsent = UnsentResponses(Turns(), 16 << 20, 1 << 40)
    few = _opened(unsent, "one", 16)
    assert {output.high_water for _, output in few} == {HIGH_WATER}
    many = few + _opened(unsent, "one", 200)
    assert sum(output.high_water for _, output in many) <= 16 << 20
    assert {output.high_water for _, output in _opened(unsent, "other", 3)} == {HIGH_WATER}
    crowd = many + _opened(unsent, "one", 3000)
    assert {output.high_water for _, output in crowd} == {LEAST_HIGH_WATER}
    for peer, _ in crowd:
        unsent.forget(peer)
    assert {output.high_water for _, output in _opened(unsent, "one", 3)} == {HIGH_WATER}


def test_connections_of_all_addresses_share_a_limit() -> None:
    unsent = UnsentResponses(Turns(), 16 << 20, 32 << 20)
    crowd = [each for number in range(100) for each in _opened(unsent, str(number), 4)]
    assert sum(output.high_water for _, output in crowd) <= 32 << 20
