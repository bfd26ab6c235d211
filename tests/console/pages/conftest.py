"""One Chromium, one cluster of three brokers and one console for all tests of pages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from penstock.client import Admin, Producer
from penstock.console.web.app import ConsoleSettings
from penstock.model.addresses import parse_bootstrap
from penstock.testing import broker, cluster
from penstock.testing.brokers import BrokerThread
from penstock.testing.clusters import Cluster
from tests.console.browser import Browser, Page, chromium
from tests.console.logins import tls_login
from tests.console.serving import serving
from tools.chromium import HOW_TO, find_chromium

_names = count()
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
}


ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip(HOW_TO)
    with chromium(path) as running:
        yield running


@pytest.fixture(scope="session")
def brokers() -> Iterator[Cluster]:
    with cluster(3, config=QUICK) as running:
        yield running


@pytest.fixture(scope="session")
def url(brokers: Cluster) -> Iterator[str]:
    with serving(brokers.bootstrap) as address:
        yield address


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    """A page that has logged no error and has sent no request to another host at the end of the test."""
    opened = browser.page()
    yield opened
    # A refused request is what some tests are about.
    assert [line for line in opened.errors() if "Failed to load resource" not in line] == []
    assert [u for u in opened.requested() if not u.startswith((url, "about:", "data:", "blob:"))] == []
    opened.close()


@pytest.fixture
def topic(brokers: Cluster) -> str:
    name = f"topic-{next(_names)}"

    async def make() -> None:
        async with Admin(brokers.bootstrap) as admin:
            await admin.create_topic(name, partitions=3, replicas=3)

    asyncio.run(make())
    return name


def produce(bootstrap: str, topic: str, values: list[bytes | None]) -> None:
    async def send() -> None:
        async with Producer(bootstrap) as producer:
            for n, value in enumerate(values):
                await producer.send(topic, value, key=f"key-{n}".encode())
            await producer.flush()

    asyncio.run(send())


@pytest.fixture(scope="session")
def secured_broker() -> Iterator[BrokerThread]:
    """A broker with TLS, SCRAM and ACLs."""
    pytest.importorskip("cryptography")
    with broker(secure=True, config=ACLS) as running:
        yield running


@pytest.fixture(scope="session")
def secured(secured_broker: BrokerThread) -> Iterator[tuple[str, str]]:
    """The address of a console for that broker, and the password of its admin."""
    bootstrap = parse_bootstrap(secured_broker.bootstrap)
    settings = ConsoleSettings(bootstrap=bootstrap, login=tls_login(secured_broker), timeout_s=30.0)
    with serving(settings) as url:
        yield url, secured_broker.client_config["sasl.password"]


def log_in(page: Page, url: str, user: str, password: str) -> None:
    page.open(url)
    page.type("User", user)
    page.type("Password", password)
    page.click("Log in")
