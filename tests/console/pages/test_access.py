"""Transactions, quotas, users, ACLs and roles in a browser, and a login whose ACLs decide what is seen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.client import Producer
from penstock.testing.clusters import Cluster
from tests.console.browser import Browser, Page
from tests.console.pages.conftest import log_in

pytestmark = pytest.mark.process


@contextmanager
def open_transaction(bootstrap: str, topic: str, name: str) -> Iterator[None]:
    """A transaction that is open for the time of the context, and is then committed."""
    begun, ends = threading.Event(), threading.Event()

    async def run() -> None:
        async with (
            Producer(bootstrap, transactional_id=name) as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send(topic, b"v")
            begun.set()
            await asyncio.to_thread(ends.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert begun.wait(90)
    try:
        yield
    finally:
        ends.set()
        thread.join(30)


def test_transactions_are_listed_and_described(page: Page, url: str, brokers: Cluster, topic: str) -> None:
    name = f"tx-{topic}"
    with open_transaction(brokers.bootstrap, topic, name):
        page.open(f"{url}/#/transactions")
        page.type("Search transactional ids", name)
        page.until_text("Ongoing", "main tbody")
        page.until_text("1 ongoing", "main")
        page.js("document.querySelector('main tbody td.num').click()")
        page.until_text(f"{topic} [", "dialog")
        page.until_text("60,000 ms", "dialog")
        assert page.nameless() == []
        page.press("Escape")
    page.until_text("CompleteCommit", "main tbody")


def test_a_quota_is_set_changed_and_removed(page: Page, url: str) -> None:
    page.open(f"{url}/#/quotas")
    page.click("Set quota")
    page.type("user", "hungry")
    page.type("producer_byte_rate", "2048")
    page.click("Save")
    page.until_text("2.0 KiB/s", "main tbody")
    assert page.nameless() == []
    page.click('Change the quota of {"user":"hungry"}')
    page.type("producer_byte_rate", "")
    page.type("request_percentage", "50")
    page.click("Save")
    page.until_text("50 %", "main tbody")
    page.click('Change the quota of {"user":"hungry"}')
    page.type("request_percentage", "")
    page.click("Save")
    page.until_text("no quota is set", "main tbody")


def create_topic(page: Page, name: str) -> None:
    page.js("location.hash = '#/topics'")
    page.click("Create topic")
    page.type("Name", name)
    page.click("Create")
    page.until_text("no message matches", "main")


def test_acls_of_the_logged_in_user_decide_which_rows_are_seen(
    browser: Browser, secured: tuple[str, str]
) -> None:
    url, password = secured
    admin = browser.page()
    log_in(admin, url, "admin", "wrong")
    admin.until_text("have not accepted the login", "form")
    assert admin.nameless() == []
    log_in(admin, url, "admin", password)
    admin.until_text("is healthy", "main")
    create_topic(admin, "payroll")
    create_topic(admin, "orders")
    _give_rights(admin)
    user = browser.page()
    log_in(user, url, "alice", "al1ce-pw")
    user.until_text("alice", "header")
    user.js("location.hash = '#/topics'")
    user.until_text("orders", "main tbody")
    assert "payroll" not in user.text("main")
    user.js("location.hash = '#/topics/payroll/messages'")
    user.until_text("payroll", "main .note")
    user.js("location.hash = '#/topics/orders/messages'")
    user.until_text("no message matches", "main")
    user.js("location.hash = '#/security'")
    user.until_text("not allowed: ACLs cannot be listed: ", "[aria-label=ACLs] tbody")
    _only_usable_buttons(admin, user)
    admin.js("location.hash = '#/security'")
    user.click("Log out alice")
    user.until("document.querySelector('form[aria-label=\"Log in\"]')")
    _take_rights(admin)
    for page in (admin, user):
        page.close()


#: pages and buttons that a user who may only read cannot use
BUTTONS = (
    ("topics", "Create topic"),
    ("topics/orders/messages", "Delete"),
    ("topics/orders/messages", "Produce"),
    ("security", "Add ACL"),
    ("cluster", "Move partition"),
    ("quotas", "Set quota"),
)


def _only_usable_buttons(admin: Page, user: Page) -> None:
    """Buttons that a user may not use are hidden."""
    for place, text in BUTTONS:
        button = f"[...document.querySelectorAll('main button')].find(b => b.innerText === '{text}')"
        for page in (admin, user):
            page.js(f"location.hash = '#/{place}'")
        admin.until(f"{button}?.checkVisibility()")
        user.until("document.querySelector('main h1')")
        user.js("Promise.all([fetch('/api/rights'), fetch('/api/topics/orders/exists')])")
        assert not user.js(f"Boolean({button}?.checkVisibility())"), text


def _give_rights(page: Page) -> None:
    """A user, an ACL of a role, the user in the role, and the explanation of the decision."""
    page.js("location.hash = '#/security'")
    page.click("Set password")
    page.type("User", "alice")
    page.type("Password", "al1ce-pw")
    page.click("Save")
    page.until_text("alice", "[aria-label=Users] tbody")
    page.click("Add ACL")
    page.type("Principal", "Role:readers")
    page.type("Operation", "read")
    page.type("Name", "orders")
    page.click("Add")
    page.until_text("Role:readers", "[aria-label=ACLs] tbody")
    page.type("Principal", "User:alice")
    page.type("Operation", "read")
    page.type("Name", "orders")
    page.click("Explain")
    page.until_text("Denied:", "[aria-label='Why was this denied?'] .health")
    page.click("Add to role")
    page.type("Role", "readers")
    page.type("Member", "User:alice")
    page.click("Add")
    page.until_text("User:alice", "[aria-label=Roles]")
    page.click("Explain")
    page.until_text("Allowed:", "[aria-label='Why was this denied?'] .health")
    assert page.nameless() == []


def _take_rights(page: Page) -> None:
    page.click("Remove User:alice from readers")
    page.click("Remove", "dialog button")
    page.until_text("No role has members", "[aria-label=Roles]")
    page.click("Remove the ACL of Role:readers")
    page.click("Remove", "dialog button")
    page.until_text("there are no ACLs", "[aria-label=ACLs] tbody")
    page.click("Revoke alice")
    page.click("End all access", "dialog button")
    page.until_text("no SCRAM user is stored", "[aria-label=Users] tbody")
