"""The application as a whole: refused requests, login, events, static files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator

import pytest
from starlette.testclient import TestClient

from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap
from penstock.testing import broker
from tests.console.logins import tls_login
from tests.console.serving import serving


def test_pages_have_a_strict_policy(console: TestClient) -> None:
    for path in ("/", "/static/app.js", "/static/pages/topics.js", "/static/app.css", "/api/session"):
        answer = console.get(path)
        assert answer.status_code == 200, path
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_static_files_stay_in_their_folder(console: TestClient) -> None:
    assert console.get("/static/../web/app.py").status_code == 404
    assert console.get("/static/%2e%2e/web/app.py").status_code == 404


def test_requests_of_other_pages_are_refused(console: TestClient) -> None:
    body = {"name": "forged"}
    assert console.post("/api/topics", json=body, headers={"x-penstock-console": ""}).status_code == 403
    assert (
        console.post("/api/topics", json=body, headers={"origin": "http://evil.example"}).status_code == 403
    )
    assert console.get("/api/topics", headers={"host": "evil.example"}).status_code == 403


def test_too_large_a_request_is_refused(console: TestClient) -> None:
    answer = console.post("/api/topics", content=b" " * (17 << 20))
    assert (answer.status_code, "larger than" in answer.json()["message"]) == (400, True)


def test_the_overview_has_health_brokers_and_totals(console: TestClient, topic: str) -> None:
    found = console.get("/api/overview").json()
    assert found["health"] == {"level": "Healthy", "reasons": []}
    assert [broker["state"] for broker in found["brokers"]] == ["running"]
    assert found["totals"]["topics"] >= 1


def test_a_cluster_that_is_not_there() -> None:
    app = build_app(ConsoleSettings(bootstrap=[("127.0.0.1", 1)], hosts=["testserver"], timeout_s=1.0))
    with TestClient(app) as client:
        answer = client.get("/api/overview")
        assert answer.status_code == 503
        assert "cannot connect" in answer.json()["message"]


def test_ticks_and_messages_arrive_as_events(bootstrap: str, topic: str, console: TestClient) -> None:
    async def first_events(url: str) -> tuple[str, str]:
        host, port = url.removeprefix("http://").split(":")
        tick = await _event(host, int(port), "/api/live", "tick")

        async def produce() -> None:
            body = {"key": {"format": "null"}, "value": {"text": "new"}}
            await asyncio.to_thread(console.post, f"/api/topics/{topic}/messages", json=body)

        return tick, await _event(host, int(port), f"/api/topics/{topic}/tail", "messages", produce)

    with serving(bootstrap) as url:
        tick, messages = asyncio.run(first_events(url))
    assert json.loads(tick)["health"]["level"] == "Healthy"
    assert json.loads(messages)["messages"][0]["value"]["text"] == "new"


async def _event(
    host: str, port: int, path: str, name: str, then: Callable[[], Awaitable[None]] | None = None
) -> str:
    """The data of the first event of a name; of the second one, if `then` runs after the first."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    async with asyncio.timeout(90):
        while True:
            line = (await reader.readline()).decode().strip()
            assert line or not reader.at_eof()
            if line == f"event: {name}":
                data = (await reader.readline()).decode().removeprefix("data: ")
                if then is None:
                    break
                await then()
                then = None
    writer.close()
    return data


@pytest.fixture(scope="module")
def secured() -> Iterator[tuple[TestClient, str]]:
    """A console for a broker with TLS and SCRAM, and the password of its admin."""
    pytest.importorskip("cryptography")
    acls = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with broker(secure=True, config={**acls, "super.users": "User:admin"}) as running:
        settings = ConsoleSettings(
            bootstrap=parse_bootstrap(running.bootstrap),
            login=tls_login(running),
            hosts=["testserver"],
            timeout_s=30.0,
        )
        with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as client:
            yield client, running.client_config["sasl.password"]


def test_a_user_logs_in_with_a_password_of_the_broker(secured: tuple[TestClient, str]) -> None:
    client, password = secured
    assert client.get("/api/topics").status_code == 401
    assert client.get("/api/session").json()["needs_login"]
    wrong = client.post("/api/login", json={"user": "admin", "password": "wrong"})
    assert (wrong.status_code, client.get("/api/topics").status_code) == (401, 401)
    right = client.post("/api/login", json={"user": "admin", "password": password})
    assert right.status_code == 200
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert password not in right.text + cookie
    assert client.post("/api/topics", json={"name": "mine", "replicas": 1}).status_code == 200
    assert client.get("/api/session").json()["user"] == "admin"
    assert client.post("/api/logout").status_code == 200
    assert client.get("/api/topics").status_code == 401
