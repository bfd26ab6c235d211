"""The metrics and the health of a machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from penstock.broker.monitoring.documents import Document
from penstock.cli.machine import endpoint as module
from penstock.cli.machine.endpoint import Endpoint
from penstock.model.config.monitoring_keys import metrics_address
from penstock.observability.health import BrokerFacts, broker_health
from penstock.observability.health_merge import BrokerReport, report
from penstock.observability.http import Request

PORTS = {1: 11, 2: 22}


DAMAGED = broker_health(BrokerFacts(damaged_ranges=1)).findings


def endpoint(ports: Mapping[int, int] = PORTS, unready: list[int] | None = None) -> Endpoint:
    return Endpoint(
        "m1",
        lambda: [1, 2],
        lambda: unready or [],
        lambda: ports,
        lambda: {1: 0, 2: 3},
        token=None,
        own_token="secret",
    )


def get(served: Endpoint, path: str) -> Document:
    return asyncio.run(served.get(Request("GET", path, {}, True)))


@pytest.fixture(autouse=True)
def brokers(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, str], bytes | None]:
    """The documents of the brokers, by port and path."""
    answers: dict[tuple[int, str], bytes | None] = {
        (11, "/metrics"): b"# TYPE up gauge\nup 1\n",
        (22, "/metrics"): b"# TYPE up gauge\nup 0\n",
        (11, "/health"): json.dumps(report(BrokerReport(1), {})).encode(),
        (22, "/health"): json.dumps(report(BrokerReport(2, DAMAGED), {})).encode(),
    }

    async def fetched(port: int, path: str, token: str) -> bytes | None:
        assert token == "secret"
        return answers[port, path]

    monkeypatch.setattr(module, "fetched", fetched)
    return answers


def test_metrics_have_the_broker_of_each_sample() -> None:
    text = b"".join(get(endpoint(), "/metrics").chunks).decode()
    assert 'up{broker="1"} 1\nup{broker="2"} 0\n' in text
    assert 'penstock_machine_broker_up{broker="2"} 1\n' in text
    assert 'penstock_machine_broker_restarts_total{broker="2"} 3\n' in text


def test_a_broker_that_does_not_run_is_down() -> None:
    text = b"".join(get(endpoint({1: 11}), "/metrics").chunks).decode()
    assert 'penstock_machine_broker_up{broker="2"} 0\n' in text


def test_health_is_that_of_the_worst_broker(brokers: dict[tuple[int, str], bytes | None]) -> None:
    def health(served: Endpoint) -> tuple[HTTPStatus, Any]:
        document = get(served, "/health")
        return document.status, json.loads(b"".join(document.chunks))

    status, found = health(endpoint())
    assert (status, found["status"], found["machine"]) == (HTTPStatus.OK, "Degraded", "m1")
    assert found["reasons"] == ["broker 2: 1 damaged range is not repaired"]
    brokers[22, "/health"] = None
    status, found = health(endpoint())
    assert (status, found["status"]) == (HTTPStatus.OK, "Degraded")
    assert found["reasons"] == ["broker 2 does not respond: the broker does not answer"]
    assert found["brokers"]["2"] == {"status": "Unhealthy", "reason": "the broker does not answer"}
    brokers[11, "/health"] = None
    assert health(endpoint())[0] == HTTPStatus.SERVICE_UNAVAILABLE


def test_a_machine_is_ready_when_all_brokers_are() -> None:
    assert get(endpoint(), "/readyz").status == HTTPStatus.OK
    document = get(endpoint(unready=[2]), "/readyz")
    assert document.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert document.chunks == [b"broker(s) 2 do not accept connections\n"]
    assert get(endpoint(unready=[2]), "/healthz").status == HTTPStatus.OK
    assert get(endpoint(), "/other").status == HTTPStatus.NOT_FOUND


def test_a_port_that_is_taken_is_replaced() -> None:
    async def both() -> tuple[str, str]:
        first, second = endpoint(), endpoint()
        address = metrics_address("auto")
        assert address is not None
        one = await first.start(address, 21_500)
        two = await second.start(address, 21_500)
        await first.stop()
        await second.stop()
        return one, two

    one, two = asyncio.run(both())
    assert one != two
