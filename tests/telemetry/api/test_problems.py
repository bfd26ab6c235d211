"""What is refused, and how: one form, that names the parameter and says why."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from penstock.telemetry.api import build_app
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.small_fleet import make_tables

GPUS, A0, UTILIZATION = "/api/v1/gpus", "/api/v1/gpus/GPU-a0/telemetry", "/api/v1/fleet/utilization"
HEALTH, ALERTS = "/api/v1/fleet/health", "/api/v1/alerts"


@pytest.mark.parametrize(
    ("path", "query", "parameter", "reason"),
    [
        (A0, "start_time=yesterday", "start_time", "not an RFC 3339 time"),
        (A0, "start_time=2025-07-18", "start_time", "not an RFC 3339 time"),
        (A0, "end_time=2025-07-18T20:00:00", "end_time", "with a zone"),
        (A0, "end_time=2025-07-18T20:00:00+02:00", "end_time", "%2B"),
        (A0, "end_time=2025-07-18T25:00:00Z", "end_time", "hour must be in 0..23"),
        (A0, "start_time=0001-01-01T00:00:00%2B01:00", "start_time", "not an RFC 3339 time"),
        (A0, "start_time=0001-01-01T00:00:00Z", "start_time", "from 1970 to 9998"),
        (A0, "start_time=1970-01-01T00:00:00%2B01:00", "start_time", "from 1970 to 9998"),
        (A0, "end_time=9999-12-31T23:59:59.9999Z", "end_time", "from 1970 to 9998"),
        (UTILIZATION, "end_time=0001-01-01T00:00:00Z", "end_time", "from 1970 to 9998"),
        (A0, "start_time=", "start_time", "not an RFC 3339 time"),
        (
            A0,
            "start_time=2025-07-18T20:00:01Z&end_time=2025-07-18T20:00:00Z",
            "end_time",
            "not after start_time",
        ),
        (A0, "metric=GPU_UTIL", "metric", "did you mean DCGM_FI_DEV_GPU_UTIL?"),
        (A0, "metric=!", "metric", "DCGM's names"),
        (A0, "metric=99999", "metric", "'99999' is unknown"),
        (A0, "metric=DCGM_FI_DEV_GPU_UTIL&metric=", "metric", "'' is unknown"),
        (A0, "resolution=2m", "resolution", "'raw', '10s', '1m' or '1h'"),
        (A0, "limit=0", "limit", "greater than or equal to 1"),
        (A0, "limit=10001", "limit", "less than or equal to 10000"),
        (A0, "limit=many", "limit", "valid integer"),
        (A0, "cursor=abc", "cursor", "not a cursor of this API"),
        (A0, "cursor=%F0", "cursor", "not a cursor of this API"),
        (A0, "strat_time=2025-07-18T20:00:00Z", "strat_time", "did you mean start_time?"),
        (A0, "x=1", "x", "known are start_time"),
        (GPUS, "end_time=x", "end_time", "not an RFC 3339 time"),
        (GPUS, "metric=150", "metric", "not a parameter of this route"),
        (GPUS, "cursor=abc", "cursor", "not a cursor of this API"),
        (UTILIZATION, "by=planet", "by", "'job', 'pod', 'namespace' or 'rack'"),
        (UTILIZATION, "limit=-1", "limit", "greater than or equal to 1"),
        ("/api/v1/fleet/idle", "start_time=x", "start_time", "not an RFC 3339 time"),
        ("/api/v1/fleet/energy", "by=", "by", "'gpu'"),
        (HEALTH, "status=bad", "status", "'critical', 'warning' or 'ok'"),
        (ALERTS, "state=closed", "state", "'open' or 'resolved'"),
        (ALERTS, "severity=ok", "severity", "'critical' or 'warning'"),
        (ALERTS, "rule=cold", "rule", "'hot'"),
        (ALERTS, "cursor=abc", "cursor", "not a cursor of this API"),
    ],
)
def test_bad_parameters(client: TestClient, path: str, query: str, parameter: str, reason: str) -> None:
    answer = client.get(f"{path}?{query}")
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["status"], problem["type"]) == (422, "about:blank")
    (fault,) = problem["errors"]
    assert fault["parameter"] == parameter
    assert reason in fault["reason"]
    assert f"{parameter}: {fault['reason']}" == problem["detail"]


@pytest.mark.parametrize("path", [GPUS, A0, UTILIZATION, HEALTH, ALERTS])
@pytest.mark.parametrize("end", ["1970-01-01T00:00:00Z", "9998-12-31T23:59:59.9999Z"])
def test_the_first_and_the_last_time_are_answered(client: TestClient, path: str, end: str) -> None:
    assert client.get(path, params={"end_time": end}).status_code == 200


def test_all_faults_are_named(client: TestClient) -> None:
    problem = client.get(f"{A0}?limit=0&start_time=x&end_time=y").json()
    assert [fault["parameter"] for fault in problem["errors"]] == ["start_time", "end_time", "limit"]


@pytest.mark.parametrize("path", [GPUS, A0, ALERTS])
def test_a_cursor_is_valid_for_its_own_query(client: TestClient, path: str) -> None:
    cursor = client.get(path, params={"limit": 1}).json()["next_cursor"]
    assert client.get(path, params={"cursor": cursor}).status_code == 200
    other = client.get(path, params={"cursor": cursor, "start_time": "2025-07-18T20:00:00Z"})
    assert other.status_code == 422
    assert "other parameters" in other.json()["detail"]
    elsewhere = client.get("/api/v1/gpus/GPU-a1/telemetry", params={"cursor": cursor})
    assert elsewhere.status_code == 422


@pytest.mark.parametrize("depth", [500, 2000, 20_000])
@pytest.mark.parametrize("path", [GPUS, A0, "/api/v1/alerts"])
def test_a_nested_cursor_is_a_problem(client: TestClient, path: str, depth: int) -> None:
    """A list in a list in a list: the decoder ends at Python's limit of recursion."""
    for nested in (b"\x91" * depth + b"\xc0", b"\x94\xa0\x00\x00" + b"\x91" * depth + b"\xc0"):
        cursor = urlsafe_b64encode(nested).decode().rstrip("=")
        answer = client.get(path, params={"cursor": cursor})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["parameter"] == "cursor"


def test_a_resolution_that_would_be_too_much(tmp_path: Path) -> None:
    from tests.telemetry.queries.tables import write

    write(tmp_path, 0, 0, 2 * 86_400_000)
    with TestClient(
        build_app(TableReader(str(tmp_path)), load_thresholds()), base_url="http://127.0.0.1"
    ) as client:
        answer = client.get("/api/v1/gpus/GPU-1/telemetry?resolution=raw")
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["parameter"] == "resolution"
        assert "1 days at most" in answer.json()["detail"]
        assert client.get("/api/v1/gpus/GPU-1/telemetry?resolution=1m").status_code == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/api/v2", 404), ("POST", GPUS, 405)])
def test_an_unknown_path_is_a_problem_document(
    client: TestClient, method: str, path: str, status: int
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert path in answer.json()["detail"]


def test_tables_that_cannot_be_read(tmp_path: Path) -> None:
    make_tables(tmp_path, 2)
    for file in tmp_path.glob("samples/day=*/*.parquet"):
        file.write_bytes(b"no parquet")
    with TestClient(
        build_app(TableReader(str(tmp_path)), load_thresholds()), base_url="http://127.0.0.1"
    ) as client:
        answer = client.get(f"{A0}?resolution=raw")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert str(tmp_path) not in answer.text


def test_a_bug_is_a_problem_too(reader: TableReader, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a secret")

    monkeypatch.setattr("penstock.telemetry.api.gpus.find_gpus", fail)
    app = build_app(reader, load_thresholds())
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        answer = client.get(GPUS)
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"] == "AssertionError: a bug in penstock"
