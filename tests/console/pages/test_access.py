"""Transactions, quotas, users, ACLs and roles in a browser, and a login whose ACLs decide what is seen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.client import Producer
from penstock.console.kafka.cluster import parse_bootstrap
from penstock.console.web.app import ConsoleSettings
from penstock.net.client_security import ClientSecurity, client_security
from penstock.testing import broker
from penstock.testing.clusters import Cluster
from tests.console.browser import Browser, Page
from tests.console.serving import serving

pytestmark = pytest.mark.process
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


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


@pytest.fixture(scope="module")
def secured() -> Iterator[tuple[str, str]]:
    """The address of a console for a broker with TLS, SCRAM and ACLs, and the password of its admin."""
    pytest.importorskip("cryptography")
    with broker(secure=True, config=ACLS) as running:
        config = running.client_config

        def login(user: str, password: str) -> ClientSecurity:
            own = {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": user,
                "sasl.password": password,
                "ssl.truststore.certificates": config["ssl.ca.pem"],
                "ssl.truststore.type": "PEM",
            }
            made = client_security("SASL_SSL", own.get, lambda: "n0nce", in_thread=asyncio.to_thread)
            assert made is not None
            return made

        settings = ConsoleSettings(bootstrap=parse_bootstrap(running.bootstrap), login=login, timeout_s=30.0)
        with serving(settings) as url:
            yield url, config["sasl.password"]


def log_in(page: Page, url: str, user: str, password: str) -> None:
    page.open(url)
    page.type("User", user)
    page.type("Password", password)
    page.click("Log in")


def create_topic(page: Page, name: str) -> None:
    page.js("location.hash = '#/topics'")
    page.click("Create topic")
    page.type("Name", name)
    page.click("Create")
    page.until_text("no message matches", "main")


def test_one_logs_in_as_oneself_and_acls_decide_what_is_seen(
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
    user.until_text("ACLs: ", "main .note")
    user.js("location.hash = '#/topics'")
    user.click("Create topic")
    user.type("Name", "mine")
    user.click("Create")
    user.until_text("is not created", "dialog")
    user.press("Escape")
    user.click("alice ⏻")
    user.until("document.querySelector('form[aria-label=\"Log in\"]')")
    _take_rights(admin)
    for page in (admin, user):
        page.close()


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
    page.until_text("denied", "[aria-label='Why was this denied?'] .pill")
    page.click("Add to role")
    page.type("Role", "readers")
    page.type("Member", "User:alice")
    page.click("Add")
    page.until_text("User:alice", "[aria-label=Roles]")
    page.click("Explain")
    page.until_text("allowed", "[aria-label='Why was this denied?'] .pill")
    assert page.nameless() == []


def _take_rights(page: Page) -> None:
    page.click("Remove User:alice from readers")
    page.click("Remove", "dialog button")
    page.until_text("No role has members", "[aria-label=Roles]")
    page.click("Remove the ACL of Role:readers")
    page.click("Remove", "dialog button")
    page.until_text("there are no ACLs", "[aria-label=ACLs] tbody")
    page.click("Remove alice")
    page.click("Remove", "dialog button")
    page.until_text("no SCRAM user is stored", "[aria-label=Users] tbody")
