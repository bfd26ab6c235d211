"""The log of a server: clients that are refused or rejected cannot flood it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.net.limits import Limits
from penstock.net.server import Server
from tests.net.echo import on_uvloop
from tests.net.time_by_hand import TimeByHand


@on_uvloop
async def test_refused_and_rejected_connections_are_counted_and_seldom_logged() -> None:
    written: list[tuple[str, dict[str, Any]]] = []
    server = Server(Limits(), lambda event, **fields: written.append((event, fields)))
    clock = TimeByHand()
    server.loop = clock.as_loop
    connection: Any = SimpleNamespace(
        peer="10.0.0.1:5", listener=SimpleNamespace(name="PLAINTEXT"), abort=lambda: None
    )
    for _ in range(1000):
        server._refuse(connection, "max.connections.per.ip")
        server.rejected(connection, "a frame of 2 GB")
    assert (server.counts.refused, server.counts.rejected) == (1000, 1000)
    names = [event for event, _ in written]
    assert (names.count("connection_refused"), names.count("connection_rejected")) == (60, 60)
    clock.advance(60)
    server.rejected(connection, "a frame of 2 GB")
    assert written[-1] == (
        "connection_rejected",
        {"peer": "10.0.0.1:5", "listener": "PLAINTEXT", "reason": "a frame of 2 GB", "left_out": 940},
    )
