"""The smallest example: a broker, a producer and a consumer."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from examples import live_traffic
from penstock import testing


@pytest.mark.process
def test_everything_that_is_sent_arrives() -> None:
    command = [sys.executable, "-m", "examples.live_traffic", "--seconds", "2", "--rate", "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # librdkafka informs about events that it drops at its end. Errors have lower levels.
    errors = [line for line in done.stderr.splitlines() if not line.startswith("%6|")]
    assert (done.returncode, errors) == (0, [])
    sent, received, failed = (int(part.split()[1]) for part in done.stdout.splitlines()[-1].split(", "))
    assert sent > 0
    assert received > 0
    assert failed == 0


def test_no_client_outlives_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is alive while the broker stops prints "Connection refused" to stderr."""
    before = clients()
    alive_at_stop: list[object] = []

    @contextmanager
    def watched_broker() -> Iterator[str]:
        with testing.broker() as running:
            yield running.bootstrap
            alive_at_stop.extend(client for client in clients() if client not in before)

    monkeypatch.setattr(live_traffic, "broker", watched_broker)
    monkeypatch.setattr(sys, "argv", ["live_traffic", "--seconds", "0.5", "--rate", "500"])
    live_traffic.main()
    assert alive_at_stop == []


def clients() -> list[object]:
    return [found for found in gc.get_objects() if type(found) in (AdminClient, Consumer, Producer)]
