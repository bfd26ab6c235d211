"""Buttons that a user may not use are hidden, also in rows, on group pages and in config editors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.testing.brokers import BrokerThread
from tests.console.browser import Browser, Page
from tests.console.pages.conftest import log_in

pytestmark = pytest.mark.process

#: a user who sees everything of this test and may change nothing
RIGHTS = (
    ("cluster", "describe", ""),
    ("cluster", "describe_configs", ""),
    ("topic", "read", "letters"),
    ("topic", "describe_configs", "letters"),
    ("group", "describe", "watched"),
)
#: a page, the text of a row that it has, and labels of its buttons
PLACES = (
    ("security", "User:viewer", ("Remove the ACL of User:viewer", "Remove viewer", "Revoke viewer")),
    ("quotas", "hungry", ('Change the quota of {"user":"hungry"}',)),
    ("groups/watched", "letters", ("Reset offsets", "Delete")),
    ("topics/letters/configs", "retention.ms", ("Review changes", "retention.ms", "Reset")),
    ("cluster/reassignment", "Balance of brokers", ("Elect preferred leaders",)),
    ("topics/letters/partitions", "First offset", ("Move partition 0",)),
    ("topics/letters/messages", "v0", ("Send letters back",)),
)


def call(page: Page, method: str, path: str, body: dict[str, Any]) -> None:
    """A request in the name of the page's user."""
    headers = '{"x-penstock-console": "1", "content-type": "application/json"}'
    sent = f"{{method: '{method}', headers: {headers}, body: JSON.stringify({json.dumps(body)})}}"
    answer = page.js(f"fetch('{path}', {sent}).then(async (r) => [r.status, await r.text()])")
    assert answer[0] == 200, answer


def shows(label: str) -> str:
    """An expression: whether a control with this text or label is visible."""
    controls = "[...document.querySelectorAll('button, input')]"
    named = f"[b.innerText, b.ariaLabel, b.title].includes({json.dumps(label)})"
    return f"{controls}.some(b => {named} && b.checkVisibility())"


def acls() -> list[dict[str, str]]:
    shared = {"permission": "allow", "principal": "User:viewer", "pattern": "literal", "host": "*"}
    return [
        {**shared, "resource": resource, "operation": operation, "name": name or "kafka-cluster"}
        for resource, operation, name in RIGHTS
    ]


def make_rows(admin: Page, running: BrokerThread) -> None:
    call(admin, "POST", "/api/topics", {"name": "letters", "partitions": 1})
    changes = {"changes": {"retention.ms": "5000000"}, "save": True}
    call(admin, "POST", "/api/topics/letters/configs", changes)
    origin = [{"name": "__dlq.errors.topic", "value": {"text": "letters"}}]
    letter = {"key": {"text": "k"}, "value": {"text": "v0"}, "headers": origin, "partition": 0}
    call(admin, "POST", "/api/topics/letters/messages", letter)
    call(admin, "POST", "/api/quotas", {"entity": {"user": "hungry"}, "limits": {"request_percentage": 50}})
    call(admin, "POST", "/api/users", {"user": "viewer", "password": "v1ewer-pw"})
    for acl in acls():
        call(admin, "POST", "/api/acls", acl)
    config = {"bootstrap.servers": running.bootstrap, "group.id": "watched", **running.client_config}
    consumer = Consumer(config)
    consumer.commit(offsets=[TopicPartition("letters", 0, 1)], asynchronous=False)
    consumer.close()


def test_controls_that_a_user_may_not_use_are_hidden(
    browser: Browser, secured: tuple[str, str], secured_broker: BrokerThread
) -> None:
    url, password = secured
    admin, viewer = browser.page(), browser.page()
    log_in(admin, url, "admin", password)
    admin.until_text("is healthy", "main")
    make_rows(admin, secured_broker)
    log_in(viewer, url, "viewer", "v1ewer-pw")
    viewer.until_text("viewer", "header")
    for place, row, labels in PLACES:
        for page in (admin, viewer):
            page.js(f"location.hash = '#/{place}'")
            page.until_text(row, "main")
            # A value that is known is no lower bound.
            assert "≥" not in page.text("main"), place
        for label in labels:
            admin.until(shows(label))
            settle(viewer)
            assert not viewer.js(shows(label)), (place, label)
    for page in (admin, viewer):
        page.js("document.querySelector('main tbody td.value').click()")
        page.until_text("v0", "aside.drawer")
    admin.until(shows("Send back…"))
    settle(viewer)
    assert not viewer.js(shows("Send back…"))
    _configs_of_a_broker(admin, viewer)
    call(admin, "POST", "/api/users/revoke", {"user": "viewer"})
    for acl in acls():
        call(admin, "DELETE", "/api/acls", acl)
    for page in (admin, viewer):
        page.close()


def settle(page: Page) -> None:
    """Return when the rights that decide about buttons have been read."""
    read = "['/api/rights', '/api/rights/topics', '/api/topics/letters/exists'].map((p) => fetch(p))"
    page.js(f"Promise.all({read}).then(() => true)")


def _configs_of_a_broker(admin: Page, viewer: Page) -> None:
    """Both read them, and one of them can change them."""
    for page in (admin, viewer):
        page.js("location.hash = '#/cluster'")
        page.click("Configs", ".broker-card button")
        page.until_text("log.retention.ms", "dialog tbody")
    admin.until(shows("Review changes"))
    settle(viewer)
    assert not viewer.js(shows("Review changes"))
