"""Encryption at rest beside plain text, on two brokers of one run: CPU of the broker per GB, and rates."""

from __future__ import annotations

import secrets
import tempfile
from base64 import b64encode
from contextlib import ExitStack
from pathlib import Path

from bench.load import consume, produce, topic
from bench.process import cpu_seconds
from bench.table import Contender, Metric, Row, Values, fresh
from bench.throughput import CONSUMER, PRODUCER
from lab.server import Server

#: messages per batch: large batches, as of a pipeline, and single records
BATCHES = {"batches of 1,000": (1000, 300_000), "single records": (1, 20_000)}
ROUNDS = 3
#: what is read in each round, again and again if less was written: CPU time is counted in units of 10 ms
_READ_BYTES = 300e6
_KINDS = ("plain text", "encrypted")


def _measure(contender: Contender, scale: float) -> list[Values]:
    with ExitStack() as running:
        file = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-"))) / "keys"
        file.touch(0o600)
        file.write_text(f"bench:{b64encode(secrets.token_bytes(32)).decode()}\n")
        keys = {"penstock.encryption.keys": f"${{file:{file}}}"}
        servers = {
            kind: running.enter_context(fresh(contender, settings))
            for kind, settings in zip(_KINDS, ({}, keys), strict=True)
        }
        # In turns, because a busy machine is busy for both.
        return [_round(servers, scale) for _ in range(ROUNDS)]


def _round(servers: dict[str, Server], scale: float) -> Values:
    found: Values = {}
    for batches, (batch, count) in BATCHES.items():
        for kind, server in servers.items():
            produced, consumed = _cost(server, int(count * scale), batch)
            found[_name("produce", batches, kind)] = produced
            found[_name("consume", batches, kind)] = consumed
    return found


def _cost(server: Server, count: int, batch: int) -> tuple[float, float]:
    """Seconds of the broker's CPU per GB: to produce, and to consume from the page cache."""
    settings = PRODUCER | {"batch.num.messages": str(batch)}
    with topic(server.bootstrap, 1) as name:
        before = cpu_seconds(server.pid)
        sent = produce(server.bootstrap, name, count, 1024, settings)
        between = cpu_seconds(server.pid)
        times = max(1, round(_READ_BYTES / sent.bytes))
        read = sum(consume(server.bootstrap, name, count, CONSUMER).bytes for _ in range(times))
        after = cpu_seconds(server.pid)
    return (between - before) / (sent.bytes / 1e9), (after - between) / (read / 1e9)


def _name(what: str, batches: str, kind: str) -> str:
    return f"{what}, {batches}, {kind}"


ROWS = (
    Row(
        "encryption",
        "CPU of the broker per GB of 1-KB messages, in plain text and with encryption at rest",
        tuple(
            Metric(_name(what, batches, kind), "s", False)
            for batches in BATCHES
            for what in ("produce", "consume")
            for kind in _KINDS
        ),
        _measure,
        heavy=True,
        alone="Kafka has no encryption at rest",
    ),
)
