"""`penstock health`: probes of all brokers."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import ExitStack

import pytest

from penstock.cli.cluster.health import EXIT_CODES, BrokerProbe, connect_times
from penstock.observability.health import Level
from tests.cli.running import Command, run_here


def test_a_healthy_cluster(penstock: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    # A broker that shares a busy machine is not degraded by that.
    monkeypatch.setattr("penstock.cli.cluster.health.PING_S", 60.0)
    monkeypatch.setattr(connect_times, "__defaults__", (60.0,))
    done = penstock("health", "--json")
    found = json.loads(done.stdout)
    (broker,) = found["brokers"]
    assert (done.returncode, found["status"], broker["status"]) == (0, "Healthy", "Healthy"), found
    assert broker["error_count"] == 0
    assert broker["response_time_ms"] >= 0
    assert broker["last_seen"].startswith("20")
    shown = penstock("health").stdout
    assert shown.startswith("cluster Healthy\n")
    assert broker["address"] in shown


def test_the_levels_of_a_probe() -> None:
    probe = BrokerProbe("host:1")
    assert probe.level is Level.UNKNOWN
    probe.connected(0.1)
    probe.answered(1000.0)
    assert (probe.level, probe.last_seen_s, probe.response_time_s) == (Level.HEALTHY, 1000.0, 0.1)
    probe.connected(0.1)
    probe.failed(Level.DEGRADED, "no answer within 2 s")
    assert (probe.level, probe.error_count, probe.last_seen_s) == (Level.DEGRADED, 1, 1000.0)
    probe.connected("no TCP connection within 5 s")
    assert (probe.level, probe.error_count) == (Level.UNHEALTHY, 2)
    assert probe.reason == "no TCP connection within 5 s"
    probe.connected(0.1)
    probe.answered(2000.0)
    assert (probe.level, probe.error_count, probe.reason) == (Level.HEALTHY, 2, "")


def test_an_address_without_a_listener_refuses_connections() -> None:
    assert asyncio.run(connect_times(["127.0.0.1:1"])) == {"127.0.0.1:1": "connection refused"}


def test_an_address_that_does_not_respond_has_timed_out() -> None:
    """Its queue of connections is full, and nothing accepts them."""
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = "{}:{}".format(*listener.getsockname())
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        found = asyncio.run(connect_times([address], timeout_s=0.2))
    assert found == {address: "no TCP connection within 0.2 s"}


def test_a_bootstrap_address_that_refuses_connections(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_here("health", "--bootstrap", "127.0.0.1:1", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (code, found["status"]) == (2, "Unhealthy")
    assert found["reasons"] == ["127.0.0.1:1: connection refused"]
    run_here("health", "--bootstrap", "127.0.0.1:1")
    assert capsys.readouterr().out.startswith("cluster Unhealthy\n  127.0.0.1:1: connection refused\n")


def test_exit_codes() -> None:
    assert EXIT_CODES == {Level.HEALTHY: 0, Level.DEGRADED: 1, Level.UNHEALTHY: 2, Level.UNKNOWN: 3}
