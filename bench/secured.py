"""TLS, beside Apache Kafka with the same certificates: throughput, latency, handshakes; and ACLs."""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from bench.load import Flow, consume, latency, produce, topic
from bench.process import cpu_seconds
from bench.requests import p99, pipelined, waits
from bench.table import Contender, Metric, Row, Values, fresh
from bench.throughput import CONSUMER, PRODUCER
from lab.apache_kafka import ACCESS_CONTROL
from lab.secured import SecuredServer, secured
from lab.server import HOST

ROUNDS = 3
LATENCY_S = 10.0
STORM_S = 6.0
STORMERS = 2
ACLS = (0, 1_000, 10_000)
ACLS_AT_ONCE = 500


@contextmanager
def _running(contender: Contender, settings: dict[str, str] | None = None) -> Iterator[SecuredServer]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        made = secured(contender.server.name, Path(folder), settings or {})
        made.server.start()
        try:
            yield made
        finally:
            made.server.stop()


def _throughput(contender: Contender, scale: float) -> list[Values]:
    """A first round, which does not count, warms a just-in-time compiler."""
    count = int(500_000 * scale)
    with _running(contender) as made:
        rounds = [_flows(made, count) for _ in range(ROUNDS + 1)]
    return rounds[1:]


def _flows(made: SecuredServer, count: int) -> Values:
    found: Values = {}
    for name, (bootstrap, security) in (("TLS", made.tls), ("SASL_SSL", made.sasl)):
        with topic(made.server.bootstrap) as topic_name:
            batched = PRODUCER | {"batch.num.messages": "1000"} | security
            before = cpu_seconds(made.server.pid)
            sent = produce(bootstrap, topic_name, count, 1024, batched)
            between = cpu_seconds(made.server.pid)
            read = consume(bootstrap, topic_name, count, CONSUMER | security)
            after = cpu_seconds(made.server.pid)
        found |= _rate(f"produce over {name}", sent, between - before)
        found |= _rate(f"consume over {name}", read, after - between)
    return found


def _rate(what: str, flow: Flow, spent: float) -> Values:
    return {
        f"{what}, messages/s": flow.messages_per_second,
        f"{what}, CPU per GB": spent / (flow.bytes / 1e9),
    }


def _latency(contender: Contender, scale: float) -> list[Values]:
    rounds = []
    with _running(contender) as made:
        bootstrap, security = made.tls
        for _ in range(ROUNDS + 1):
            with topic(made.server.bootstrap) as name:
                settings = {"acks": "all", "linger.ms": "0", **security}
                seen = latency(bootstrap, name, int(LATENCY_S * scale * 1000), 1000, settings)
            rounds.append({"p50": seen.end_to_end.p50, "p99": seen.end_to_end.p99})
    return rounds[1:]


def _handshakes(contender: Contender, scale: float) -> list[Values]:
    rounds = []
    with _running(contender) as made, topic(made.server.bootstrap, 1) as name:
        plain = (HOST, made.server.port)
        for _ in range(ROUNDS + 1):
            calm = p99(waits(plain, name, STORM_S * scale / 2))
            with _storm(made) as counts:
                began = time.perf_counter()
                stormy = p99(waits(plain, name, STORM_S * scale))
                done = sum(count.value for count in counts)
                rate = done / (time.perf_counter() - began)
            found = {"handshakes/s": rate, "p99 alone": calm, "p99 under the storm": stormy}
            rounds.append({**found, "CPU per handshake": _handshake_cpu(made, STORM_S * scale / 2)})
    return rounds[1:]


def _handshake_cpu(made: SecuredServer, seconds: float) -> float:
    """Milliseconds of the broker's CPU per connection, handshake and first request, without other clients."""
    with _storm(made) as counts:
        before, done = cpu_seconds(made.server.pid), sum(count.value for count in counts)
        time.sleep(seconds)
        spent, done = cpu_seconds(made.server.pid) - before, sum(count.value for count in counts) - done
    return spent / max(1, done) * 1000


@contextmanager
def _storm(made: SecuredServer) -> Iterator[list[multiprocessing.sharedctypes.Synchronized[int]]]:
    """Processes that connect with a certificate, and close, as fast as they can."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    counts = [context.Value("i", 0) for _ in range(STORMERS)]
    processes = [
        context.Process(target=_shake, args=(made.tls_port, str(made.folder), stop, count), daemon=True)
        for count in counts
    ]
    for process in processes:
        process.start()
    while not all(count.value for count in counts):
        time.sleep(0.01)
    for count in counts:
        count.value = 0
    try:
        yield counts
    finally:
        stop.set()
        for process in processes:
            process.join()


def _shake(port: int, folder: str, stop: Event, count: object) -> None:
    context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    context.load_cert_chain(f"{folder}/client.pem")
    while not stop.is_set():
        with (
            socket.create_connection((HOST, port)) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as secured_socket,
        ):
            # With TLS 1.3 a server has verified the client's certificate once it responds.
            secured_socket.sendall(bytes.fromhex("0000000e") + bytes.fromhex("0012000000000001000474657374"))
            secured_socket.recv(4096)
        count.value += 1  # type: ignore[attr-defined]


def _acls(contender: Contender, scale: float) -> list[Values]:
    """The listener is plaintext: the rows above have the cost of TLS."""
    settings = {**ACCESS_CONTROL, "super.users": "User:admin"}
    found: Values = {}
    with fresh(contender, settings) as server, topic(server.bootstrap) as name:
        existing = 0
        for wanted in ACLS:
            _add_acls(server.bootstrap, existing, wanted)
            existing = wanted
            address = (HOST, server.port)
            pipelined(address, name, int(20_000 * scale))
            flow = pipelined(address, name, int(60_000 * scale))
            found[f"requests/s with {wanted:,} ACLs"] = flow.messages_per_second
    last = found[f"requests/s with {ACLS[-1]:,} ACLs"]
    found[f"{ACLS[-1]:,} ACLs, time"] = found["requests/s with 0 ACLs"] / last
    return [found]


def _add_acls(bootstrap: str, begin: int, end: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    kinds = (ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED)
    for first in range(begin, end, ACLS_AT_ONCE):
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                f"other-{number}",
                kinds[number % 2],
                f"User:user-{number % 100}",
                "*",
                AclOperation.READ,
                AclPermissionType.ALLOW,
            )
            for number in range(first, min(end, first + ACLS_AT_ONCE))
        ]
        for done in admin.create_acls(bindings, request_timeout=60).values():
            done.result(60)


ROWS = (
    Row(
        "tls-1k",
        "produce and consume 1-KB messages over TLS 1.3 (client certificates) and SASL_SSL (PLAIN)",
        tuple(
            metric
            for what in ("produce", "consume")
            for name in ("TLS", "SASL_SSL")
            for metric in (
                Metric(f"{what} over {name}, messages/s", "", True, times_kafka=1.0),
                Metric(f"{what} over {name}, CPU per GB", "s", False, times_kafka=1.0),
            )
        ),
        _throughput,
        heavy=True,
    ),
    Row(
        "tls-latency-1k",
        "end to end at 1,000 messages/s over TLS, linger 0",
        (Metric("p50", "ms", False), Metric("p99", "ms", False, times_kafka=0.7)),
        _latency,
        heavy=True,
    ),
    Row(
        "tls-handshakes",
        "mutual TLS handshakes of two clients (ECDSA P-256), and one-record Produce requests of others",
        (
            Metric("handshakes/s", "", True, times_kafka=0.7),
            Metric("CPU per handshake", "ms", False),
            Metric("p99 alone", "ms", False),
            Metric("p99 under the storm", "ms", False, times_kafka=1.0),
        ),
        _handshakes,
        heavy=True,
    ),
    Row(
        "acls",
        "one-record Produce requests, pipelined, with an authorizer",
        (
            *(Metric(f"requests/s with {count:,} ACLs", "", True) for count in ACLS),
            Metric(f"{ACLS[-1]:,} ACLs, time", "× none", False, limit=1.1),
        ),
        _acls,
        heavy=True,
    ),
)
