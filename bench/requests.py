"""The cost of a request without batching: one record per Produce on raw sockets, at full or fixed rate."""

from __future__ import annotations

import select
import socket
import statistics
import struct
import time

import crc32c

from bench.load import Flow, topic
from bench.process import cpu_seconds
from bench.table import Contender, Metric, Row, Values
from lab.server import HOST

CONNECTIONS = 4
DEPTH = 50
RATE = 1000
RECORD = b"x" * 100
SETTLE_S = 0.5
LEADS_AFTER_S = 10.0
PRODUCE_V7_ERROR_AT = 4 + 4 + 2 + 4 + 4
"""Where the first partition's error code lies in a response, after the topic's name."""


def record_batch(value: bytes) -> bytes:
    """One record without key or headers, as a version-2 batch."""
    body = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    record = _varint(len(body)) + body
    now_ms = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    head = struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c.crc32c(checked))
    return head + checked


def produce_frame(name: str, partition: int, batch: bytes) -> bytes:
    """A Produce v7 request with acks=1."""
    encoded = name.encode()
    header = struct.pack(">hhih", 0, 7, 1, 5) + b"bench"
    body = struct.pack(">hhiih", -1, 1, 30_000, 1, len(encoded)) + encoded
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    return struct.pack(">i", len(header) + len(body)) + header + body


def fetch_frame(name: str, partition: int, offset: int, max_bytes: int) -> bytes:
    """A Fetch v4 request that does not wait."""
    encoded = name.encode()
    header = struct.pack(">hhih", 1, 4, 1, 5) + b"bench"
    body = struct.pack(">iiiibih", -1, 0, 0, 50 << 20, 0, 1, len(encoded)) + encoded
    body += struct.pack(">iiqi", 1, partition, offset, max_bytes)
    return struct.pack(">i", len(header) + len(body)) + header + body


def pipelined(address: tuple[str, int], name: str, requests: int) -> Flow:
    """Send bursts of `DEPTH` requests on each connection and read all answers before the next burst."""
    batch = record_batch(RECORD)
    sockets = [socket.create_connection(address) for _ in range(CONNECTIONS)]
    try:
        bursts = []
        for partition, connection in enumerate(sockets):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            frame = produce_frame(name, partition, batch)
            bursts.append((connection, frame * DEPTH, _first_answer(connection, name, frame) * DEPTH))
        began = time.perf_counter()
        done = 0
        while done < requests:
            for connection, frames, _ in bursts:
                connection.sendall(frames)
            for connection, _, expected in bursts:
                _drain(connection, expected)
            done += CONNECTIONS * DEPTH
        return Flow(done, done * len(RECORD), time.perf_counter() - began)
    finally:
        for connection in sockets:
            connection.close()


def waits(address: tuple[str, int], name: str, seconds: float) -> list[float]:
    """Milliseconds from when each request was due to its answer, `RATE` a second.

    As in a producer, none waits for another; a stall delays all that queue behind it, and each counts.
    """
    found: list[float] = []
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = produce_frame(name, 0, record_batch(RECORD))
        answer_bytes = _first_answer(connection, name, frame)
        began = time.perf_counter()
        total, sent, received = int(seconds * RATE), 0, 0
        while len(found) < total:
            ahead = began + sent / RATE - time.perf_counter() if sent < total else 1.0
            if ahead <= 0:
                connection.sendall(frame)
                sent += 1
            elif select.select([connection], [], [], ahead)[0]:
                received += _received(connection, 1 << 16)
                now = time.perf_counter()
                while (len(found) + 1) * answer_bytes <= received:
                    found.append((now - began - len(found) / RATE) * 1e3)
    return found


def p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def _first_answer(connection: socket.socket, name: str, frame: bytes) -> int:
    """Bytes of one answer, which all that follow share, once it is a success.

    The request may reach a broker before it knows that it leads a topic that was just created.
    """
    deadline = time.monotonic() + LEADS_AFTER_S
    while True:
        connection.sendall(frame)
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        answer = connection.recv(size, socket.MSG_WAITALL)
        (error,) = struct.unpack_from(">h", answer, PRODUCE_V7_ERROR_AT + len(name.encode()))
        if not error:
            return 4 + size
        if time.monotonic() > deadline:
            raise RuntimeError(f"Produce answered error {error}")
        time.sleep(0.02)


def _drain(connection: socket.socket, expected: int) -> None:
    while expected > 0:
        expected -= _received(connection, min(expected, 1 << 20))


def _received(connection: socket.socket, at_most: int) -> int:
    got = len(connection.recv(at_most))
    if not got:
        raise ConnectionResetError("the broker closed the connection")
    return got


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _requests(contender: Contender, scale: float) -> Values:
    server = contender.server
    with topic(server.bootstrap) as name:
        time.sleep(SETTLE_S)
        before = cpu_seconds(server.pid)
        flow = pipelined((HOST, server.port), name, int(100_000 * scale))
        spent = cpu_seconds(server.pid) - before
    return {"requests/s": flow.messages_per_second, "CPU per request": spent / flow.messages * 1e6}


ROWS = (
    Row(
        "requests",
        "one-record Produce requests, acks=1, 50 deep on 4 raw sockets",
        (
            Metric("requests/s", "", True, times_kafka=1.5),
            Metric("CPU per request", "µs", False, times_kafka=0.5),
        ),
        _requests,
        where=(
            "in the interpreter, whose steps per request `tests/bench/test_budget.py` counts: they decode, "
            "check and append, dispatch, count and answer; the write is one system call. The rate is what "
            "the broker and the one-threaded generator make together."
        ),
    ),
)
