"""Clients that try to grow the metrics, on a small scale; `make hostile` runs 100,000 names of each kind."""

from __future__ import annotations

from penstock.testing import broker
from tests.broker.monitoring.hostile import attack
from tests.broker.monitoring.scrapes import MONITORED


def test_names_that_clients_choose_add_no_samples() -> None:
    said: list[str] = []
    with broker(config=MONITORED) as running:
        assert running.broker.serving.monitor is not None
        port = running.broker.stages.listening.listeners[0].port
        assert attack(port, running.broker.serving.monitor.port, 300, 20, said.append) == []
        assert len(running.broker.stages.storage.metrics.throttles) == 0
    assert len(said) == 4
