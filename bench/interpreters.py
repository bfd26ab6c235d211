"""`python -m bench.interpreters PYTHON…`: the cost of the hot paths of a broker on several interpreters.

Each PYTHON is the path of an interpreter whose environment has the package. The brokers run side by side and
rounds alternate. Load comes from raw sockets, so that no client library is needed; CPU is the broker's. It is
the figure to compare, because it hardly depends on other load of the machine. The result is kept as JSON, and
rendered into `docs/benchmarks.md`. NOTE has circumstances for the page, such as other work on the machine.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import crc32c

from bench.load import topic
from bench.process import thread_seconds
from bench.report import write
from bench.requests import SETTLE_S, _drain, _first_answer, _varint, fetch_frame, pipelined, produce_frame
from bench.results import (
    INTERPRETERS,
    INTERPRETERS_ROW,
    LATEST,
    Run,
    commit,
    load,
    machine,
    save,
    today,
    versions,
)
from lab.penstock import penstock
from lab.server import HOST, Server
from tools.arguments import Arguments

ROUNDS = 5
REQUESTS = 6_000
BATCHES = 400
RECORDS_PER_BATCH = 100
FETCH_BYTES = 1 << 20
DEPTH = 4
_LABELS = ("produce, s per million 1-KB messages", "consume, s per GB", "one-record Produce, µs per request")


def batch_of_records(count: int, value: bytes) -> bytes:
    """`count` records without keys, as a version-2 batch."""
    records = b""
    for delta in range(count):
        body = b"\0" + _varint(0) + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
        records += _varint(len(body)) + body
    now_ms = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c.crc32c(checked)) + checked


def produce_and_consume(server: Server) -> tuple[float, float]:
    """CPU seconds per million messages produced, and per GB consumed."""
    batch = batch_of_records(RECORDS_PER_BATCH, b"x" * 1000)
    with topic(server.bootstrap, 1) as name, socket.create_connection((HOST, server.port)) as connection:
        frame = produce_frame(name, 0, batch)
        answer = _first_answer(connection, name, frame)
        time.sleep(SETTLE_S)
        before = thread_seconds(server.pid)
        for _ in range(BATCHES // DEPTH):
            connection.sendall(frame * DEPTH)
            _drain(connection, answer * DEPTH)
        produced = thread_seconds(server.pid) - before
        size = 0
        before = thread_seconds(server.pid)
        for offset in range(0, BATCHES * RECORDS_PER_BATCH, 10 * RECORDS_PER_BATCH):
            connection.sendall(fetch_frame(name, 0, offset, FETCH_BYTES))
            length = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            _drain(connection, length)
            size += length
        consumed = thread_seconds(server.pid) - before
    return produced / (BATCHES * RECORDS_PER_BATCH) * 1e6, consumed / size * 1e9


def requests(server: Server) -> float:
    """CPU microseconds per one-record Produce request."""
    with topic(server.bootstrap) as name:
        time.sleep(SETTLE_S)
        before = thread_seconds(server.pid)
        flow = pipelined((HOST, server.port), name, REQUESTS)
        return (thread_seconds(server.pid) - before) / flow.messages * 1e6


def main(pythons: list[str]) -> int:
    names = [
        subprocess.check_output([python, "-c", "import platform as p; print(p.python_version())"], text=True)
        for python in pythons
    ]
    running_versions = [name.strip() for name in names]
    run = Run(machine(), versions(), commit(), ROUNDS, 1.0, running_versions, date=today())
    run.circumstances = os.environ.get("NOTE", "")
    with ExitStack() as running:
        servers = {}
        for name, python in zip(names, pythons, strict=True):
            folder = running.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-"))
            server = servers[name.strip()] = penstock(Path(folder), {}, python)
            server.start()
            running.callback(server.stop)
        for _ in range(ROUNDS):
            for name, server in servers.items():
                found = [*produce_and_consume(server), requests(server)]
                print(name, *(f"{value:.3g}" for value in found), file=sys.stderr)
                run.add(INTERPRETERS_ROW, name, dict(zip(_LABELS, found, strict=True)))
    save(INTERPRETERS, [run])
    write(load(LATEST), [run])
    return 0


if __name__ == "__main__":
    parser = Arguments(prog="python -m bench.interpreters", description=__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", default=[sys.executable])
    sys.exit(main(parser.parse_args().pythons))
