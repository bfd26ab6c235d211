"""One broker in memory for the tests that need nothing special, and a fresh connection for each.

With `PENSTOCK_TEST_AGAINST=host:port` the tests that use these fixtures alone run against the broker there:
Apache Kafka, to see whether we expect what it does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from penstock.broker.base import logs
from penstock.testing import broker
from tests.broker.events import Events
from tests.broker.raw import RawClient
from tests.broker.requests import AGAINST, Topic, create_topic

#: for what we do otherwise than Apache Kafka, on purpose
penstock_only = pytest.mark.skipif(AGAINST is not None, reason="Penstock differs from Apache Kafka here")


def record_threads(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[str]:
    """The names of the threads that call a function of `module` from now on."""
    threads: list[str] = []
    function = getattr(module, name)

    def recorded(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return function(*args)

    monkeypatch.setattr(module, name, recorded)
    return threads


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """What brokers in this process log, at every level."""
    found = Events()
    for logger in logs._loggers.values():
        for level in logs.LEVELS:
            monkeypatch.setattr(logger, level, partial(found.add, level))
    return found


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    if AGAINST:
        yield AGAINST
        return
    with broker() as running:
        yield running.bootstrap


@pytest.fixture
def client(address: str) -> Iterator[RawClient]:
    with RawClient(address) as connected:
        yield connected


@pytest.fixture
def topic(client: RawClient) -> Topic:
    return create_topic(client)
