"""1,000 clients connect at once, with and without TLS: an honest client waits for none of them.

The event loop accepts a few connections in each of its iterations, and runs one step of one TLS handshake.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.stall_meter import WAIT_MS, StallMeter, machine_scale, thread_of
from penstock.testing.brokers import BrokerThread
from tests.secured import HOST, pki
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]
_CLIENTS = 1000
_REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    certificates = pki()
    settings = {
        "listeners": f"PLAIN://{HOST}:0,TLS://{HOST}:0",
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,TLS:SSL",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "penstock.memory": "true",
        "penstock.unauthenticated.connections.max": str(2 * _CLIENTS),
        "penstock.unauthenticated.connections.max.per.ip": str(2 * _CLIENTS),
        "penstock.authentication.timeout.ms": "120000",
    }
    broker = BrokerThread(settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.mark.parametrize("listener", ["PLAIN", "TLS"])
def test_an_honest_client_does_not_wait_for_a_storm(running: BrokerThread, listener: str) -> None:
    server = running.broker.stages.listening.server
    ports = {each.name: each.port for each in running.broker.stages.listening.listeners}

    def storm() -> None:
        accepted = server.counts.accepted
        command = [sys.executable, "-m", "tests.hostile.storm", str(ports[listener]), str(_CLIENTS), listener]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_REPOSITORY
        ) as clients:
            assert clients.stdout is not None and clients.stdin is not None
            assert clients.stdout.readline() == b"connected\n"
            eventually(lambda: server.counts.accepted >= accepted + _CLIENTS, 60)
            clients.stdin.close()
        eventually(lambda: len(server.connections) <= 1, 60)

    with StallMeter(ports["PLAIN"], thread_of()) as honest:
        worst_ms = honest.stalls(storm, machine_scale())
    assert worst_ms <= WAIT_MS, worst_ms
