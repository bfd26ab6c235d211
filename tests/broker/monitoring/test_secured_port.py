"""The monitoring port with TLS and a token."""

from __future__ import annotations

import http.client
import json
import ssl
import time

import pytest

from penstock.testing import BrokerThread, broker
from tests.broker.monitoring.scrapes import Scraped, without_stalls

pytestmark = pytest.mark.process
DAY_S = 86400


def get(running: BrokerThread, path: str, token: str = "", *, tls: bool = True) -> tuple[int, str]:
    assert running.broker.serving.monitor is not None
    context, port = ssl._create_unverified_context(), running.broker.serving.monitor.port
    connection: http.client.HTTPConnection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if tls:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("listener", ["127.0.0.1:0", "https://127.0.0.1:0"])
def test_a_secured_broker_without_a_token_names_no_topic(listener: str) -> None:
    """Local users could read all topic and group names at an address that was set."""
    with broker(secure=True, config={"penstock.metrics.listener": listener}) as running:
        for path in ("/metrics", "/metrics/kafka", "/health"):
            assert get(running, path, tls=listener.startswith("https"))[0] == 401
        status, text = get(running, "/readyz", tls=listener.startswith("https"))
        assert (status, without_stalls(text)) == (200, "ready\n")


def test_an_empty_token_opens_the_port() -> None:
    config = {"penstock.metrics.listener": "127.0.0.1:0", "penstock.metrics.token": ""}
    with broker(secure=True, config=config) as running:
        assert get(running, "/metrics", tls=False)[0] == 200


def test_tls_and_a_token() -> None:
    config = {"penstock.metrics.listener": "https://127.0.0.1:0", "penstock.metrics.token": "secret"}
    with broker(secure=True, config=config) as running:
        status, text = get(running, "/readyz")
        assert (status, without_stalls(text)) == (200, "ready\n")
        assert get(running, "/metrics")[0] == 401
        assert get(running, "/metrics", "wrong")[0] == 401
        status, text = get(running, "/metrics", "secret")
        assert status == 200
        page = Scraped(text)
        expiries = page.labels("penstock_tls_certificate_expiry_timestamp_seconds")
        assert {labels["listener"] for labels in expiries} >= {"METRICS"}
        for labels in expiries:
            expiry = page.value("penstock_tls_certificate_expiry_timestamp_seconds", **labels)
            assert expiry > time.time() + DAY_S / 24
        assert json.loads(get(running, "/health", "secret")[1])["broker"]["status"] in ("Healthy", "Degraded")
