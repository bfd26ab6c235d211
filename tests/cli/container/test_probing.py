"""Probes that run a command."""

from __future__ import annotations

import pytest

from penstock.cli.container.probing import probe
from penstock.cli.failure import Failure
from penstock.testing import broker
from tests.broker.monitoring.scrapes import MONITORED


def test_a_broker_answers_probes() -> None:
    with broker(config=MONITORED) as running:
        monitor = running.broker.serving.monitor
        assert monitor is not None
        base = f"http://127.0.0.1:{monitor.port}"
        assert probe(f"{base}/readyz", 60).startswith("ready")
        assert probe(f"{base}/readyz/in-sync", 60) == "in sync"
        with pytest.raises(Failure, match="answers 404: unknown path"):
            probe(f"{base}/nowhere", 60)
    with pytest.raises(Failure, match="does not answer"):
        probe(f"{base}/healthz", 1)


def test_an_address_that_is_none() -> None:
    with pytest.raises(Failure, match="is not http://HOST:PORT/PATH"):
        probe("127.0.0.1:9404", 1)
