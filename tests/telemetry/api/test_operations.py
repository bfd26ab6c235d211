"""The endpoints for operators of the server."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient

from penstock.telemetry.api import build_app
from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import load_thresholds


def test_alive_and_ready(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}


def test_ready_when_there_are_tables(tmp_path: Path) -> None:
    with TestClient(
        build_app(TableReader(str(tmp_path)), load_thresholds()), base_url="http://127.0.0.1"
    ) as client:
        assert client.get("/healthz").status_code == 200
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert "no tables" in answer.json()["detail"]
        assert str(tmp_path) not in answer.text
        assert "penstock_telemetry_newest_sample_seconds NaN" in client.get("/metrics").text
        Tables(str(tmp_path)).open("samples")
        assert client.get("/readyz").status_code == 200


def test_metrics(client: TestClient) -> None:
    for _ in range(2):
        client.get("/api/v1/gpus/GPU-a0/telemetry?limit=1")
    client.get("/api/v1/gpus?limit=0")
    client.get("/nowhere")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    route = "/api/v1/gpus/{uuid}/telemetry"
    assert float(lines[f'penstock_api_requests_total{{route="{route}",status="200"}}']) >= 2
    assert float(lines['penstock_api_requests_total{route="/api/v1/gpus",status="422"}']) >= 1
    assert float(lines['penstock_api_requests_total{route="none",status="404"}']) >= 1
    assert float(lines[f'penstock_api_request_seconds_count{{route="{route}"}}']) >= 2
    assert float(lines["penstock_telemetry_newest_sample_seconds"]) == 1752877740.0
