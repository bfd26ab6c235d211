"""`penstock health`: probes of all brokers."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.cli.cluster.health import BrokerProbe, connect_times
from penstock.observability.health import Level
from tests.cli.running import Command


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
    probe.connected(None)
    assert (probe.level, probe.error_count) == (Level.UNHEALTHY, 2)
    assert probe.reason == "no TCP connection within 5 s"
    probe.connected(0.1)
    probe.answered(2000.0)
    assert (probe.level, probe.error_count, probe.reason) == (Level.HEALTHY, 2, "")


def test_an_address_without_a_listener_has_no_time() -> None:
    assert asyncio.run(connect_times(["127.0.0.1:1"])) == {"127.0.0.1:1": None}
