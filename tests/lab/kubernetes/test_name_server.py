"""The server of names, over loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from lab.kubernetes.name_server import NameServer
from tests.lab.kubernetes.dns_messages import query, read


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        server.bind(("127.0.0.1", 0))
        client.connect(server.getsockname())
        client.settimeout(60)
        yield server, client


def test_names_stay_while_the_api_does_not_answer(
    sockets: tuple[socket.socket, socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    bound, client = sockets
    answers = iter([{"a.b": ["10.0.0.1"]}])

    def names() -> dict[str, list[str]]:
        found = next(answers, None)
        if found is None:
            raise ConnectionRefusedError("no API server")
        return found

    server = NameServer(names, bound)
    for _ in range(2):
        server.refresh()
        client.send(query("a.b"))
        server.answer()
        assert read(client.recv(512)) == (0, ["10.0.0.1"])
    assert "no API server" in capsys.readouterr().out
