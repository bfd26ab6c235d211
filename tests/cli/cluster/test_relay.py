"""Relays: bytes pass, a cut holds them back in both directions, a cut broker is found as a source."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from penstock.cli.cluster.relay import Relays, Route, sources_of

HOST = "127.0.0.1"
_SILENCE_S = 0.1


class Stage:
    """A broker 1 that echoes, behind a relay, and one client."""

    def __init__(self) -> None:
        #: brokers by the ports of their connections
        self.sources: dict[int, int] = {}
        self.relays = Relays(lambda: self.sources)
        self.port = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.port)


def play(act: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.close()

        stage = Stage()
        async with await asyncio.start_server(echo, HOST, 0) as broker:
            target = broker.sockets[0].getsockname()[1]
            await stage.relays.open([Route(1, HOST, 0, target)])
            stage.port = stage.relays._servers[0].sockets[0].getsockname()[1]
            try:
                await act(stage)
            finally:
                stage.relays.close()

    asyncio.run(asyncio.wait_for(run(), 60))


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.read(1), _SILENCE_S)
    except TimeoutError:
        return True
    return False


def test_bytes_pass_in_both_directions_and_the_end_too() -> None:
    async def act(stage: Stage) -> None:
        reader, writer = await stage.connect()
        payload = os.urandom(3_000_000)
        writer.write(payload)
        assert await reader.readexactly(len(payload)) == payload
        writer.close()
        assert await reader.read() == b""

    play(act)


def test_a_cut_holds_bytes_back_until_it_heals() -> None:
    async def act(stage: Stage) -> None:
        reader, writer = await stage.connect()
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        stage.relays.cut_off({1})
        writer.write(b"b")
        assert await is_silent(reader)
        stage.relays.cut_off(())
        assert await reader.readexactly(1) == b"b"
        writer.close()

    play(act)


def test_a_new_connection_to_a_cut_broker_gets_no_response() -> None:
    async def act(stage: Stage) -> None:
        stage.relays.cut_off({1})
        reader, writer = await stage.connect()
        writer.write(b"c")
        assert await is_silent(reader)
        stage.relays.cut_off({2})
        assert await reader.readexactly(1) == b"c"
        writer.close()

    play(act)


def test_the_connections_that_a_cut_broker_has_made_are_cut() -> None:
    async def act(stage: Stage) -> None:
        (mine, sender), (other, client) = await stage.connect(), await stage.connect()
        stage.sources[sender.get_extra_info("sockname")[1]] = 2
        for reader, writer in ((mine, sender), (other, client)):
            writer.write(b"d")
            assert await reader.readexactly(1) == b"d"
        stage.relays.cut_off({2})
        sender.write(b"e")
        client.write(b"e")
        assert await other.readexactly(1) == b"e"
        assert await is_silent(mine)
        for writer in (sender, client):
            writer.close()

    play(act)


def test_a_broker_that_is_down_drops_connections() -> None:
    async def act(stage: Stage) -> None:
        await stage.relays.open([Route(2, HOST, 0, 1)])
        port = stage.relays._servers[1].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(HOST, port)
        with suppress(ConnectionError):
            assert await reader.read(1) == b""
        writer.close()

    play(act)


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="relays need /proc")
def test_the_process_of_a_connection_is_found() -> None:
    async def act(stage: Stage) -> None:
        _, writer = await stage.connect()
        assert sources_of({7: os.getpid()})[writer.get_extra_info("sockname")[1]] == 7
        assert sources_of({7: 2**22 + 1}) == {}
        writer.close()

    play(act)
