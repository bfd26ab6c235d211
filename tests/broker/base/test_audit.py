"""Audit events and their limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.base.audit import Audit
from penstock.broker.base.context import Context
from penstock.security.principal import Principal, Session
from tests.broker.events import Events

SESSION = Session(Principal("User", "eve"), "CLIENTS", "10.0.0.9")


def context() -> Context:
    known = SimpleNamespace(session=SESSION, stats=SimpleNamespace(name="DeleteTopics"), client_id="c")
    return cast(Context, known)


def named(events: Events, event: str) -> list[dict[str, Any]]:
    return [fields for _, name, fields in events.all if name == event]


def test_events_have_the_fields_of_ocsf(events: Events) -> None:
    audit = Audit(10, lambda: 0.0)
    audit.denied(context(), "DELETE", "TOPIC", "t")
    audit.changed(context(), succeeded=True)
    audit.authentication_failed(SESSION, "PLAIN", "wrong password")
    (denied,) = named(events, "access_denied")
    assert (denied["class_uid"], denied["status_id"], denied["principal"]) == (6003, 2, "User:eve")
    assert (denied["api"], denied["operation"], denied["resource"]) == ("DeleteTopics", "DELETE", "t")
    (changed,) = named(events, "metadata_changed")
    assert (changed["class_uid"], changed["status_id"], changed["host"]) == (6003, 1, "10.0.0.9")
    (failed,) = named(events, "authentication_failed")
    assert (failed["class_uid"], failed["activity_id"], failed["mechanism"]) == (3002, 1, "PLAIN")


def test_events_beyond_the_limit_are_dropped_and_counted(events: Events) -> None:
    now = [0.0]
    audit = Audit(2, lambda: now[0])
    for _ in range(5):
        audit.denied(context(), "READ", "TOPIC", "t")
    assert len(named(events, "access_denied")) == 2
    now[0] = 0.5
    audit.denied(context(), "READ", "TOPIC", "t")
    assert named(events, "access_denied")[-1]["dropped"] == 3
    audit.denied(context(), "READ", "TOPIC", "t")
    assert len(named(events, "access_denied")) == 3


def test_a_limit_of_zero_writes_nothing(events: Events) -> None:
    Audit(0, lambda: 0.0).denied(context(), "READ", "TOPIC", "t")
    assert not named(events, "access_denied")
