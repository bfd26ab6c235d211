"""The monitoring port with TLS and a token."""

from __future__ import annotations

import http.client
import json
import ssl
import time

import pytest

from penstock.testing import BrokerThread, broker
from tests.broker.monitoring.scrapes import Scraped

pytestmark = pytest.mark.process
DAY_S = 86400


def get(running: BrokerThread, path: str, token: str = "") -> tuple[int, str]:
    assert running.broker.monitor is not None
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(
        "127.0.0.1", running.broker.monitor.port, timeout=60, context=context
    )
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_tls_and_a_token() -> None:
    config = {"penstock.metrics.listener": "https://127.0.0.1:0", "penstock.metrics.token": "secret"}
    with broker(secure=True, config=config) as running:
        assert get(running, "/readyz") == (200, "ready\n")
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
