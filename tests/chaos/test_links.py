"""A cut holds back what passes in that direction, from that broker, and nothing else."""

from __future__ import annotations

import gc
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from chaos.links import Links

PATIENCE_S = 60.0


@pytest.fixture
def links() -> Iterator[Links]:
    links = Links()
    links.start()
    yield links
    links.close()


@pytest.fixture
def echo() -> Iterator[int]:
    """A listener that returns what it gets, on each connection until that ends."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1000):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def request_of(node: int) -> bytes:
    return request_by(f"node-{node}".encode())


def request_by(name: bytes) -> bytes:
    return struct.pack(">ihhih", 10 + len(name), 18, 0, 1, len(name)) + name


def call(port: int, node: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    connection.sendall(request_of(node))
    return connection


def assert_silence(connection: socket.socket) -> None:
    connection.settimeout(0.3)
    with pytest.raises(TimeoutError):
        connection.recv(100)
    connection.settimeout(PATIENCE_S)


@pytest.mark.parametrize("way", [(1, 2), (2, 1)])
def test_a_cut_holds_back_until_it_is_healed(links: Links, echo: int, way: tuple[int, int]) -> None:
    port = links.add(2, echo)
    links.cut([way])
    with call(port, 1) as cut, call(port, 3) as other:
        assert other.recv(100) == request_of(3)
        assert_silence(cut)
        links.heal()
        assert cut.recv(100) == request_of(1)


@pytest.mark.parametrize("name", [b"1", b"raft-client-1", b"broker-1-fetcher-0"])
def test_brokers_of_apache_kafka_are_known_by_their_names(links: Links, echo: int, name: bytes) -> None:
    port = links.add(2, echo)
    links.cut([(1, 2)])
    address = "127.0.0.1", port
    with socket.create_connection(address, timeout=PATIENCE_S) as broker, call(port, -1) as client:
        broker.sendall(request_by(name))
        assert client.recv(100) == request_of(-1)
        assert_silence(broker)
        links.heal()
        assert broker.recv(100) == request_by(name)


def test_connections_to_a_closed_port_are_dropped(links: Links) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        port = links.add(2, taken.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as visitor:
            try:
                assert visitor.recv(1) == b""
            except ConnectionResetError:
                return


def test_the_end_closes_connections_that_were_just_accepted(
    echo: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unclosed: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", unclosed.append)
    for _ in range(10):
        links = Links()
        links.start()
        port = links.add(1, echo)
        visitors = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
        links.close()
        for visitor in visitors:
            visitor.close()
    gc.collect()
    assert not unclosed
