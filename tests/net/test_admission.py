"""Limits of connections and of new connections (KIP-402, KIP-612)."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from penstock.model.config import BrokerConfig
from penstock.net.limits import Limits
from tests.net.echo import Echo, Peer, connect, frame, on_uvloop, read_frame, serving, until
from tests.net.time_by_hand import TimeByHand


async def greet(peer: Peer) -> bytes:
    peer[1].write(frame(b"hello"))
    return await read_frame(peer[0])


async def is_closed(peer: Peer) -> bool:
    try:
        return await peer[0].read(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("limit", [{"max_connections": 1}, {"max_connections_by_listener": {"PLAINTEXT": 1}}])
def test_a_connection_beyond_the_limit_waits_for_a_free_slot(limit: dict[str, Any]) -> None:
    @on_uvloop
    async def check() -> None:
        app = Echo()
        async with serving(app, **limit) as (server, port):
            first = await connect(port)
            assert await greet(first) == b"hello"
            second = await connect(port)
            late = asyncio.create_task(greet(second))
            await until(lambda: server._admission.waiting == 1)
            assert await greet(first) == b"hello"
            assert not late.done()
            first[1].close()
            assert await late == b"hello"

    check()


@on_uvloop
async def test_a_raised_limit_admits_waiting_connections() -> None:
    async with serving(Echo(), max_connections=1) as (server, port):
        peers = [await connect(port) for _ in range(2)]
        await until(lambda: server._admission.waiting == 1)
        server.limits = Limits(max_connections=2)
        assert [await greet(peer) for peer in peers] == [b"hello"] * 2


@on_uvloop
async def test_no_more_connections_wait_than_the_backlog_has() -> None:
    async with serving(Echo(), max_connections=1, backlog=1) as (server, port):
        first, second = await connect(port), await connect(port)
        await until(lambda: server._admission.waiting == 1)
        third = await connect(port)
        assert await is_closed(third)
        assert server.counts.refused == 1
        assert await greet(first) == b"hello"
        first[1].close()
        assert await greet(second) == b"hello"


@on_uvloop
async def test_a_lowered_limit_closes_the_longest_idle_connections() -> None:
    async with serving(Echo()) as (server, port):
        idle, busy = await connect(port), await connect(port)
        await until(lambda: server._admission.served == 2)
        await asyncio.sleep(0.002)  # one has been idle for longer
        assert await greet(busy) == b"hello"
        server.limits = Limits(max_connections=1)
        assert await is_closed(idle)
        assert await greet(busy) == b"hello"


@on_uvloop
async def test_connections_that_come_faster_than_they_may_are_served_later() -> None:
    """Ten seconds' worth of connections may come at once, as in Kafka. The others come one by one."""
    clock = TimeByHand()
    async with serving(Echo(), clock, rates={"": 1}) as (server, port):
        peers = [await connect(port) for _ in range(12)]
        await until(lambda: len(server.connections) == 12)
        assert [await greet(peer) for peer in peers[:10]] == [b"hello"] * 10
        late = asyncio.gather(*map(greet, peers[10:]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert server._admission.waiting == 2
        clock.advance(1.01)
        await until(lambda: server._admission.waiting == 1)
        clock.advance(1.01)
        assert await late == [b"hello"] * 2


@on_uvloop
async def test_a_listener_has_a_rate_of_its_own() -> None:
    clock = TimeByHand()
    async with serving(Echo(), clock, rates={"": 1000, "PLAINTEXT": 1}) as (server, port):
        peers = [await connect(port) for _ in range(11)]
        await until(lambda: len(server.connections) == 11)
        assert server._admission.waiting == 1
        clock.advance(1.01)
        assert [await greet(peer) for peer in peers] == [b"hello"] * 11


@on_uvloop
async def test_an_address_beyond_its_rate_is_closed_after_a_delay() -> None:
    clock = TimeByHand()
    async with serving(Echo(), clock) as (server, port):
        server.rates.set_address_rates({None: 1000.0, "127.0.0.1": 1.0})
        peers = [await connect(port) for _ in range(11)]
        await until(lambda: server.counts.refused == 1)
        assert [await greet(peer) for peer in peers[:10]] == [b"hello"] * 10
        clock.advance(0.05)
        assert len(server.connections) == 11
        clock.advance(1.0)
        assert await is_closed(peers[10])


@on_uvloop
async def test_a_connection_that_ends_while_it_waits_gives_its_place_to_the_next() -> None:
    clock = TimeByHand()
    async with serving(Echo(), clock, rates={"": 1}) as (server, port):
        peers = [await connect(port) for _ in range(10)]
        await until(lambda: server._admission.served == 10)
        peers.append(await connect(port))
        await until(lambda: server._admission.waiting == 1)
        last = await connect(port)
        await until(lambda: server._admission.waiting == 2)
        (head,) = [c for c in server.connections if c is server._admission._queues["PLAINTEXT"][0]]
        head.abort()
        await until(lambda: server._admission.waiting == 1)
        clock.advance(1.01)
        assert await greet(last) == b"hello"


@on_uvloop
async def test_many_clients_connect_at_once_while_the_loop_is_busy() -> None:
    """With a backlog of 50, the others would retransmit their SYN after a second."""
    async with serving(Echo(), backlog=BrokerConfig().socket_listen_backlog_size) as (_, port):
        clients = [socket.socket() for _ in range(200)]
        try:
            for client in clients:
                client.settimeout(0.9)
                # Blocks the event loop: the server accepts nothing meanwhile.
                client.connect(("127.0.0.1", port))
        finally:
            for client in clients:
                client.close()
