"""What a producer feels of groups beside it: a thousand members in one, and a thousand of them.

The members heartbeat every three seconds, and rebalances go on all the time (`bench/members.py`). They run in
a process of their own; on two cores they, the broker and the producer that is measured share what there is.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.beside import RATE, SECONDS, p99
from bench.lifecycle import allow_open_files
from bench.load import topic
from bench.requests import RECORD, produce_frame, record_batch
from bench.table import Contender, Metric, Row, Values, fresh
from lab.home import REPOSITORY
from lab.server import HOST, Server

CROWD = 1000
SETTINGS = {"group.initial.rebalance.delay.ms": "100", "group.consumer.max.size": "2000"}


def _groups(contender: Contender, scale: float) -> Values:
    allow_open_files(4 * CROWD)
    crowd = int(CROWD * scale)
    with fresh(contender, SETTINGS) as server, topic(server.bootstrap, 1) as name:
        _waits(server, name, 1.0)
        alone = p99(_waits(server, name, SECONDS * scale))
        values = {"p99 alone": alone}
        for label, protocol, groups, members in (
            ("one classic group", "classic", 1, crowd),
            ("one consumer group", "consumer", 1, crowd),
            ("1,000 classic groups", "classic", crowd, 1),
            ("1,000 consumer groups", "consumer", crowd, 1),
        ):
            with (
                topic(server.bootstrap, members) as shared,
                _crowd(server, shared, protocol, groups, members),
            ):
                values[f"beside {label}"] = p99(_waits(server, name, SECONDS * scale)) / alone
    return values


def _waits(server: Server, name: str, seconds: float) -> list[float]:
    """Milliseconds from when each request was due to its answer; as in a producer, none waits for another."""
    waits: list[float] = []
    with socket.create_connection((HOST, server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = produce_frame(name, 0, record_batch(RECORD))
        connection.sendall(frame)
        answer_bytes = len(connection.recv(1 << 16))  # and so many bytes for each that follows
        began = time.perf_counter()
        total, sent, received = int(seconds * RATE), 0, 0
        while len(waits) < total:
            ahead = began + sent / RATE - time.perf_counter() if sent < total else 1.0
            if ahead <= 0:
                connection.sendall(frame)
                sent += 1
            elif select.select([connection], [], [], ahead)[0]:
                received += len(connection.recv(1 << 16))
                now = time.perf_counter()
                while (len(waits) + 1) * answer_bytes <= received:
                    waits.append((now - began - len(waits) / RATE) * 1e3)
    return waits


@contextmanager
def _crowd(server: Server, name: str, protocol: str, groups: int, members: int) -> Iterator[None]:
    """Members that have found their place and go on; what they did is told at the end."""
    command = [
        sys.executable,
        "-m",
        "bench.members",
        str(server.port),
        name,
        protocol,
        str(groups),
        str(members),
    ]
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != "settled":
                raise RuntimeError(f"the members did not find their place in {server.name}")
            settled = time.perf_counter() - began
            yield
            process.stdin.close()
            done = json.loads(process.stdout.readline())
            print(
                f"    {groups} {protocol} groups of {members}: joined in {settled:.1f} s, "
                f"then {done['joins']} joins and {done['heartbeats']} heartbeats",
                file=sys.stderr,
            )
        finally:
            process.kill()


ROWS = (
    Row(
        "groups",
        "one-record Produce, acks=1, 1,000 a second, beside 1,000 group members that rebalance",
        (
            Metric("p99 alone", "ms", False),
            Metric("beside one classic group", "× alone", False, limit=2),
            Metric("beside one consumer group", "× alone", False, limit=2),
            Metric("beside 1,000 classic groups", "× alone", False, limit=2),
            Metric("beside 1,000 consumer groups", "× alone", False, limit=2),
        ),
        _groups,
        heavy=True,
    ),
)
