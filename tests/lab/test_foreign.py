"""A server of another protocol is ready when it says hello."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab.foreign import ForeignServer, greets, started
from lab.home import LabError
from lab.server import free_port

SAYS_HELLO = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        connection, _ = server.accept()
        connection.sendall(b"INFO {}")
        connection.close()
"""


def server(folder: Path, expected: bytes, seconds: float) -> ForeignServer:
    port = free_port()
    program = [sys.executable, "-c", SAYS_HELLO, str(port)]
    return ForeignServer(
        "hello",
        port,
        program,
        folder / "hello.log",
        start_timeout=seconds,
        is_ready=lambda timeout: greets(port, b"", expected, timeout),
    )


@pytest.mark.process
def test_servers_are_started_and_stopped(tmp_path: Path) -> None:
    there = server(tmp_path, b"INFO {", 60.0)
    with started(there):
        assert there.runs() and there.pid > 0
    assert not there.runs()


@pytest.mark.process
def test_a_server_with_another_greeting_is_stopped(tmp_path: Path) -> None:
    there = server(tmp_path, b"AMQP", 0.3)
    with pytest.raises(LabError, match="hello gave no answer"), started(there):
        pass
    assert not there.runs()
