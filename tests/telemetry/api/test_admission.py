"""Requests for other names are refused: a page's own name may resolve to this server (DNS rebinding)."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from penstock.telemetry.api import build_app
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import load_thresholds

PATHS = ["/api/v1/gpus", "/metrics", "/docs", "/openapi.json", "/readyz", "/nowhere"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080"])
def test_other_names_are_refused(client: TestClient, path: str, host: str) -> None:
    answer = client.get(path, headers={"Host": host})
    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"
    assert "--allow-host" in answer.json()["detail"]
    assert "GPU-" not in answer.text


@pytest.mark.parametrize(
    "host", ["localhost:8080", "127.0.0.1", "10.1.2.3:8080", "[::1]:8080", "gpus.example"]
)
def test_own_names_and_addresses_are_served(reader: TableReader, host: str) -> None:
    app = build_app(reader, load_thresholds(), hosts=["GPUs.example"])
    with TestClient(app, base_url=f"http://{host}") as client:
        assert client.get("/api/v1/gpus").status_code == 200


def test_a_refused_name_is_refused_before_the_token(reader: TableReader) -> None:
    with TestClient(build_app(reader, load_thresholds(), "token"), base_url="http://127.0.0.1") as client:
        answer = client.get("/api/v1/gpus", headers={"Host": "evil.example", "Authorization": "Bearer token"})
        assert answer.status_code == 421
