"""The latency of a producer beside consumer groups: one group of a thousand members, and a thousand groups.

The members send heartbeats every three seconds, and rebalances go on all the time (`bench/members.py`). They
run in a process of their own with low priority, because real members run on other machines. Each crowd is
measured several times, in turn with a pause of its process: best against best, and the medians.

The latency of the producer includes the work of the kernel and of other processes. So the delay of Penstock's
event loop is measured in the broker, too (`bench/watched.py`).
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.lifecycle import allow_open_files
from bench.load import topic
from bench.requests import p99, waits
from bench.table import Contender, Metric, Row, Values
from bench.watched import lateness, watched
from lab.home import REPOSITORY
from lab.server import HOST, Server

CROWD = 1000
INSIDE = "p99 of the loop's lateness"
PAIRS = 4
ALONE_S = 2.0
CATCH_UP_S = 3.5
BESIDE_S = 5.0
"""Longer than a large group takes from one rebalance to the next."""
#: label to protocol and whether all are members of one group
CROWDS = {
    "one classic group": ("classic", True),
    "one consumer group": ("consumer", True),
    "1,000 classic groups": ("classic", False),
    "1,000 consumer groups": ("consumer", False),
}
SETTINGS = {"group.initial.rebalance.delay.ms": "100", "group.consumer.max.size": "2000"}


@dataclass(slots=True)
class Stretch:
    """The measurements of several periods, in milliseconds."""

    #: the producer's
    p99s: list[float] = field(default_factory=list)
    #: the delay of the broker's event loop; empty if it cannot be measured
    inside_p99s: list[float] = field(default_factory=list)
    inside_longest: list[float] = field(default_factory=list)


def _groups(contender: Contender, scale: float) -> Values:
    allow_open_files(4 * CROWD)
    crowd = int(CROWD * scale)
    values: Values = {}
    with _watched(contender) as (server, watch), topic(server.bootstrap, 1) as name:
        waits((HOST, server.port), name, 1.0)
        for label, (protocol, in_one) in CROWDS.items():
            groups, members = (1, crowd) if in_one else (crowd, 1)
            with (
                topic(server.bootstrap, members) as shared,
                _crowd(server, shared, protocol, groups, members) as process,
            ):
                alone, beside = _pairs(server, name, process, watch, scale)
            values["p99 alone"] = min([*alone.p99s, values.get("p99 alone", alone.p99s[0])])
            values[f"beside {label}"] = min(beside.p99s) / min(alone.p99s)
            values[f"beside {label}, medians"] = _median(beside.p99s) / _median(alone.p99s)
            if watch is not None:
                inside = min([*alone.inside_p99s, values.get(INSIDE, alone.inside_p99s[0])])
                values[INSIDE] = inside
                values[f"{INSIDE}, beside {label}"] = _median(beside.inside_p99s)
                values[f"longest turn beside {label}"] = _median(beside.inside_longest)
    return values


def _median(values: list[float]) -> float:
    return statistics.median(values)


@contextmanager
def _watched(contender: Contender) -> Iterator[tuple[Server, Path | None]]:
    """A new broker, and the file with the delay of its event loop, for Penstock."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        server = contender.starter(Path(folder), SETTINGS)
        watch = watched(server, Path(folder)) if contender.name == "penstock" else None
        server.start()
        try:
            yield server, watch
        finally:
            server.stop()


def _pairs(
    server: Server, name: str, process: subprocess.Popen[str], watch: Path | None, scale: float
) -> tuple[Stretch, Stretch]:
    """While the members stand still and while they go on, in turn: so a noisy machine spoils both."""
    alone, beside = Stretch(), Stretch()
    for _ in range(PAIRS):
        process.send_signal(signal.SIGSTOP)
        try:
            _measure(server, name, watch, ALONE_S * scale, alone)
        finally:
            process.send_signal(signal.SIGCONT)
        # After the pause all members send their overdue heartbeats at once. That must not be measured.
        time.sleep(CATCH_UP_S)
        _measure(server, name, watch, BESIDE_S * scale, beside)
    return alone, beside


def _measure(server: Server, name: str, watch: Path | None, seconds: float, into: Stretch) -> None:
    if watch is None:
        into.p99s.append(p99(waits((HOST, server.port), name, seconds)))
        return
    with lateness(watch) as late_us:
        into.p99s.append(p99(waits((HOST, server.port), name, seconds)))
    into.inside_p99s.append(p99([us / 1e3 for us in late_us]))
    into.inside_longest.append(max(late_us) / 1e3)


@contextmanager
def _crowd(
    server: Server, name: str, protocol: str, groups: int, members: int
) -> Iterator[subprocess.Popen[str]]:
    """A crowd of members that have joined; yields its process, and checks its counts at the end."""
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
            yield process
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
            *(Metric(f"beside {crowd}", "× alone", False, limit=2) for crowd in CROWDS),
            *(Metric(f"beside {crowd}, medians", "× alone", False) for crowd in CROWDS),
            Metric(INSIDE, "ms", False),
            *(Metric(f"{INSIDE}, beside {crowd}", "ms", False) for crowd in CROWDS),
            *(Metric(f"longest turn beside {crowd}", "ms", False) for crowd in CROWDS),
        ),
        _groups,
        heavy=True,
        where="what the broker's own loop does is the loop's lateness in the same row; what a producer waits "
        "beyond that is for one of the cores, which it shares with the broker, the members and the kernel",
    ),
)
