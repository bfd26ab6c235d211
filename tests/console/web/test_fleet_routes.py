"""The GPU fleet over HTTP: answers of the telemetry API, and what happens without one."""

from __future__ import annotations

from starlette.testclient import TestClient

from penstock.console.web.app import ConsoleSettings, build_app
from penstock.console.web.fleet_routes import Telemetry
from tests.console.fleet import telemetry_api


def client(telemetry: Telemetry | None) -> TestClient:
    settings = ConsoleSettings(bootstrap=[("127.0.0.1", 1)], hosts=["testserver"], telemetry=telemetry)
    return TestClient(build_app(settings))


def test_the_fleet_its_alerts_and_one_gpu() -> None:
    with telemetry_api() as (url, requested), client(Telemetry(url, "s3cret")) as console:
        assert console.get("/api/session").json()["telemetry"]
        fleet = console.get("/api/fleet").json()
        assert (fleet["items"][0]["gpu_id"], fleet["alerts"][0]["rule"]) == ("GPU-1", "idle_occupied")
        page = console.get("/api/fleet/GPU-1", params={"minutes": 5}).json()
        (series,) = page["series"]
        assert [value for _, value in series["points"]] == [5.0, 7.0]
        assert any("start_time=2030-01-01T00%3A05" in path for path in requested)
        assert console.get("/api/fleet/..%2F..%2Fsecret").status_code in (404, 409)
        assert not any("/secret" in path for path in requested)


def test_refusals_and_silence_are_explained() -> None:
    with telemetry_api() as (url, _), client(Telemetry(url, "wrong")) as console:
        refused = console.get("/api/fleet")
        assert (refused.status_code, "401" in refused.json()["message"]) == (409, True)
    with client(Telemetry("http://127.0.0.1:1")) as console:
        assert console.get("/api/fleet").status_code == 503


def test_without_a_telemetry_api_there_is_no_page() -> None:
    with client(None) as console:
        assert not console.get("/api/session").json()["telemetry"]
        assert console.get("/api/fleet").status_code == 404
