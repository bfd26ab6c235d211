"""A console over one broker in memory, without a network between test and console."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from starlette.testclient import TestClient

from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap
from penstock.testing import broker

_names = count()
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
    "message.max.bytes": "20000000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    with broker(config=QUICK) as running:
        yield running.bootstrap


@pytest.fixture(scope="session")
def console(bootstrap: str) -> Iterator[TestClient]:
    """The console, with the header that its own pages send."""
    settings = ConsoleSettings(bootstrap=parse_bootstrap(bootstrap), hosts=["testserver"], timeout_s=20.0)
    app = build_app(settings)
    with TestClient(app, headers={"x-penstock-console": "1"}) as client:
        yield client


@pytest.fixture
def topic(console: TestClient) -> str:
    """A topic of three partitions that no other test uses."""
    name = f"topic-{next(_names)}"
    assert console.post("/api/topics", json={"name": name, "partitions": 3}).status_code == 200
    return name
