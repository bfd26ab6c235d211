"""The monitoring port that a broker process has by default."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from penstock.broker.app.broker import Broker
from penstock.model.config import BrokerConfig
from penstock.model.config.monitoring_keys import metrics_address
from penstock.testing import broker
from penstock.testing.brokers import BrokerThread
from tests.broker.monitoring.scrapes import get, without_stalls

OFFSET = 20_000


@pytest.fixture
def as_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Brokers in threads of this process open as a process of their own does."""
    monkeypatch.setattr(Broker, "open", partial(Broker.open, is_process=True))
    yield


def port_of(running: BrokerThread) -> int:
    assert running.broker.serving.monitor is not None
    return running.broker.serving.monitor.port


def at(port: int) -> dict[str, str]:
    return {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}


def port_with_free_neighbour() -> int:
    """A free port whose neighbour is free, too. Neither other tests nor the kernel take such ports."""
    for port in random.sample(range(12_000, 12_760), 100):
        with closing(socket.socket()) as one, closing(socket.socket()) as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + OFFSET))
            except OSError:
                continue
            return port
    raise AssertionError("no free port with a free neighbour")


def test_the_port_is_that_of_clients_plus_an_offset_on_loopback(as_process: None) -> None:
    port = port_with_free_neighbour()
    with broker(config=at(port)) as running:
        assert port_of(running) == port + OFFSET
        assert get(port_of(running), "/healthz")[:2] == (200, "alive\n")
        status, text, _ = get(port_of(running), "/readyz")
        assert (status, without_stalls(text)) == (200, "ready\n")
        assert get(port_of(running), "/metrics")[0] == 200
        assert get(port_of(running), "/metrics", Host="evil.example")[0] == 421


def test_a_port_that_is_taken_is_replaced(as_process: None) -> None:
    port = port_with_free_neighbour()
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", port + OFFSET))
        other.listen()
        with broker(config=at(port)) as running:
            assert port_of(running) != port + OFFSET
            assert get(port_of(running), "/readyz")[0] == 200


def test_an_address_that_is_set_and_taken_is_an_error() -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        config = {"penstock.metrics.listener": f"127.0.0.1:{other.getsockname()[1]}"}
        with pytest.raises(OSError), broker(config=config):
            pass


def test_a_secured_broker_shows_only_its_health_without_a_token(as_process: None) -> None:
    with broker(secure=True) as running:
        assert get(port_of(running), "/healthz")[0] == get(port_of(running), "/readyz")[0] == 200
        for path in ("/metrics", "/metrics/kafka", "/health"):
            assert get(port_of(running), path)[0] == 401
            assert get(port_of(running), path, Authorization="Bearer ")[0] == 401


def test_a_broker_inside_another_process_has_no_port() -> None:
    with broker() as running:
        assert running.broker.serving.monitor is None


def test_the_default_needs_no_permission_and_fits_every_client_port() -> None:
    config = BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:9092"})
    assert config.insecure_listeners() == []
    address = metrics_address("auto")
    assert address is not None and config.metrics_address == address
    assert (address.host, address.port_beside(9092), address.port_beside(0)) == ("127.0.0.1", 29092, 0)
    assert address.port_beside(60_000) == 0
    assert metrics_address("") is None
