"""Logins over HTTP: guesses end at a limit, and one visitor cannot lock out the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.broker.base import logs
from penstock.console.web.app import ConsoleSettings, build_app
from penstock.console.web.sessions import COOKIE
from penstock.console.web.visitors import parse_networks
from penstock.model.addresses import parse_bootstrap
from penstock.testing import broker
from penstock.testing.brokers import BrokerThread
from tests.broker.events import Events
from tests.console.logins import tls_login
from tests.waiting import eventually

pytest.importorskip("cryptography")
FAILURES_MAX = 25


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """What brokers in this process log."""
    found = Events()
    for logger in logs._loggers.values():
        for level in logs.LEVELS:
            monkeypatch.setattr(logger, level, partial(found.add, level))
    return found


@contextmanager
def console_of(running: BrokerThread, *proxies: str) -> Iterator[TestClient]:
    """A console, for requests of a proxy at 10.0.0.1."""
    settings = ConsoleSettings(
        bootstrap=parse_bootstrap(running.bootstrap),
        login=tls_login(running),
        hosts=["testserver"],
        proxies=parse_networks(proxies),
        timeout_s=30.0,
    )
    with TestClient(
        build_app(settings), headers={"x-penstock-console": "1"}, client=("10.0.0.1", 1)
    ) as client:
        yield client


def secured(**config: str) -> AbstractContextManager[BrokerThread]:
    """A broker that refuses an address after 25 failed logins."""
    limits = {
        "penstock.authentication.failures.per.ip.max": str(FAILURES_MAX),
        "connection.failed.authentication.delay.ms": "0",
        "penstock.audit.aggregation.ms": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    return broker(secure=True, config={**limits, **{k.replace("_", "."): v for k, v in config.items()}})


def password_of(running: BrokerThread) -> str:
    return running.client_config["sasl.password"]


def log_in(client: TestClient, user: str, password: str, visitor: str = "203.0.113.7") -> Any:
    body = {"user": user, "password": password}
    return client.post("/api/login", json=body, headers={"x-forwarded-for": visitor})


def test_guesses_end_with_429_before_they_reach_the_broker() -> None:
    with secured() as running, console_of(running) as client:
        answers = [log_in(client, "admin", f"guess-{n}") for n in range(20)]
        assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 10
        refused = answers[-1]
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert refused.json()["error"] == "TooManyLogins"
        # The right password has to wait, too: the answer does not tell whether a guess was right.
        assert log_in(client, "admin", password_of(running)).status_code == 429


def test_a_visitor_does_not_lock_out_the_others() -> None:
    """The broker has one address for all visitors: 25 wrong guesses of one locked out all of them."""
    with secured() as running, console_of(running, "10.0.0.0/8") as client:
        answers = [log_in(client, f"user-{n}", "guess").status_code for n in range(3 * FAILURES_MAX)]
        assert answers.count(401) == 10
        assert log_in(client, "admin", password_of(running), "203.0.113.8").status_code == 200
        assert client.get("/api/topics").status_code == 200


def test_many_visitors_do_not_lock_out_the_others_of_a_known_console() -> None:
    """With `penstock.console.addresses` the broker counts failures of the browsers."""
    known = secured(penstock_console_addresses="127.0.0.1")
    with known as running, console_of(running, "10.0.0.0/8") as client:
        for n in range(2 * FAILURES_MAX):
            assert log_in(client, f"user-{n}", "guess", f"198.51.100.{n}").status_code == 401
        assert log_in(client, "admin", password_of(running)).status_code == 200


def test_an_address_that_an_untrusted_peer_states_is_ignored() -> None:
    with secured() as running, console_of(running) as client:
        answers = [log_in(client, "admin", "guess", f"198.51.100.{n}").status_code for n in range(12)]
        assert answers == [401] * 10 + [429] * 2


def test_an_unreachable_broker_is_no_wrong_password() -> None:
    with secured() as running, console_of(running) as client:
        password = password_of(running)
        running.stop()
        assert {log_in(client, "admin", password).status_code for _ in range(12)} == {503}


def test_a_session_ends_when_the_brokers_refuse_its_login() -> None:
    """A page that stayed open repeated the old password, and the broker refused the console's address."""
    with secured() as running, console_of(running) as client:
        assert log_in(client, "admin", password_of(running)).status_code == 200
        user = {"user": "alice", "password": "first-password"}
        assert client.post("/api/users", json=user).status_code == 200
        eventually(lambda: log_in(client, **user).status_code == 200)
        alice = client.cookies[COOKIE]
        assert log_in(client, "admin", password_of(running)).status_code == 200
        assert client.post("/api/users", json={**user, "password": "second"}).status_code == 200
        running.restart()
        client.cookies = {COOKIE: alice}

        def has_ended() -> bool:
            client.get("/api/overview")
            return client.get("/api/session").json()["logged_in"] is False

        eventually(has_ended)
        found = running.broker.stages.listening.securities.authentications
        assert sum(count for (_, result), count in found.items() if result == "failure") <= 2


def test_the_audit_names_the_browser(events: Events) -> None:
    with secured() as running, console_of(running, "10.0.0.0/8") as client:
        log_in(client, "admin", "guess", "203.0.113.7")
        (failed,) = audited(events)
        assert failed["client_id"] == "penstock-console/203.0.113.7"
        assert failed["host"] == "127.0.0.1"
        assert "visitor" not in failed, "any client can claim an address"


def test_the_audit_believes_a_known_console(events: Events) -> None:
    known = secured(penstock_console_addresses="127.0.0.0/8")
    with known as running, console_of(running, "10.0.0.0/8") as client:
        log_in(client, "admin", "guess", "203.0.113.7")
        (failed,) = audited(events)
        assert (failed["host"], failed["visitor"]) == ("127.0.0.1", "203.0.113.7")
        assert log_in(client, "admin", password_of(running), "2001:db8::7").status_code == 200
        assert client.post("/api/topics", json={"name": "mine", "replicas": 1}).status_code == 200
        changes = [fields for _, fields in events.of("metadata_changed")]
        assert changes[-1]["visitor"] == "2001:db8::7"
        assert changes[-1]["client_id"] == "penstock-console/2001:db8::7"


def audited(events: Events) -> list[dict[str, Any]]:
    failed = [fields for _, fields in events.of("authentication_failed")]
    return [fields for fields in failed if fields.get("class_uid") == 3002]
