"""The proxy that stands for a long line."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from lab.wan import FROM, TO, Wan


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets, on one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(1 << 16):
                    connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


def test_a_delay_counts_in_both_directions(echo: int) -> None:
    with Wan() as wan:
        wan.delay_s = 0.1
        with socket.create_connection(("127.0.0.1", wan.add(echo)), 60) as client:
            began = time.monotonic()
            client.sendall(b"hello")
            assert client.recv(5) == b"hello"
            assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("direction", [TO, FROM])
def test_bytes_that_are_sent_into_a_cut_arrive_once_it_is_healed(echo: int, direction: str) -> None:
    with Wan() as wan, socket.create_connection(("127.0.0.1", wan.add(echo)), 60) as client:
        client.sendall(b"one")
        assert client.recv(3) == b"one"
        wan.cut([direction])
        client.sendall(b"two")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(3)
        wan.heal()
        client.settimeout(60)
        assert client.recv(3) == b"two"


def test_a_line_that_loses_packets_keeps_the_order(echo: int) -> None:
    sent = bytes(range(256)) * 4000
    with Wan(seed=1) as wan:
        wan.delay_s, wan.loss = 0.002, 0.01
        with socket.create_connection(("127.0.0.1", wan.add(echo)), 60) as client:
            writer = threading.Thread(target=client.sendall, args=(sent,))
            writer.start()
            found = bytearray()
            while len(found) < len(sent) and (data := client.recv(1 << 16)):
                found += data
            writer.join(60)
    assert bytes(found) == sent
