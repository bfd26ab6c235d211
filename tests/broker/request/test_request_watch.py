"""Slow requests: what is logged of them, and what does not count as slow."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.base.context import Context
from penstock.broker.base.metrics import ApiStats
from penstock.broker.request.request_subjects import Subjects
from penstock.broker.request.request_watch import RequestWatch
from penstock.model.errors import ErrorCode
from penstock.observability.requests import ServedRequest
from penstock.testing import broker
from penstock.testing.brokers import BrokerThread
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from tests.broker.configs import BROKER, DEFAULT_BROKER, SET, alter
from tests.broker.events import Events
from tests.broker.raw import RawClient
from tests.broker.requests import append, create_topic, new_name
from tests.waiting import eventually

S = 1_000_000_000


class Watched:
    """A watch without a broker, and what it exports."""

    def __init__(self) -> None:
        clock: Any = SimpleNamespace(monotonic=lambda: 5.0, now_ms=lambda: 1_700_000_000_000)
        subjects = Subjects(lambda key, index: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda topic_id: None)
        self.watch = RequestWatch(clock, subjects, 10)
        self.exported: list[ServedRequest] = []
        self.watch.export = self.exported.append

    def slow(self, api: str, took: int, *, handled: int | None = None, **marks: int) -> ServedRequest | None:
        """The request that is exported; one that starts at second 100, with a threshold of one second."""
        connection: Any = SimpleNamespace(peer="127.0.0.1:1", listener=SimpleNamespace(name="PLAINTEXT"))
        tasks: Any = None
        context = Context(tasks, connection, "app", 3, ApiStats(api))
        if handled is not None:
            context.handled_ns = handled
        if marks:
            context.marks = marks
        before = len(self.exported)
        self.watch.slow(context, 100 * S, took, S, None, None)
        return self.exported[-1] if len(self.exported) > before else None


def test_the_stages_of_a_request_that_waits() -> None:
    found = Watched().slow("Produce", 3 * S, handled=101 * S, flush=102 * S, append=90 * S)
    assert found is not None
    # The mark from before this request is that of another one with the same context.
    assert found.stages_ns == {"handle": S, "wait": 2 * S, "flush": S}
    assert found.began_unix_ns == 1_700_000_000_000 * 10**6 - 3 * S


def test_a_request_that_is_answered_at_once_has_one_stage() -> None:
    found = Watched().slow("Metadata", 2 * S)
    assert found is not None and found.stages_ns == {"handle": 2 * S}


@pytest.mark.parametrize("api", ["Fetch", "JoinGroup", "SyncGroup", "ShareFetch"])
def test_a_wait_that_the_client_wants_does_not_count(api: str) -> None:
    watched = Watched()
    assert watched.slow(api, 60 * S, handled=100 * S + 5) is None
    assert watched.slow(api, 60 * S, handled=101 * S) is not None


def test_a_fetch_that_waits_for_a_disk_is_slow() -> None:
    found = Watched().slow("Fetch", 3 * S, handled=100 * S + 5, disk=102 * S)
    assert found is not None and found.stages_ns["disk"] == 2 * S - 5


def test_events_are_limited_but_all_are_counted(events: Events) -> None:
    watched = Watched()
    watched.watch.limit.per_minute = 2
    for _ in range(5):
        watched.slow("Metadata", 2 * S)
    assert len(events.of("request_slow")) == len(watched.exported) == 2


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    config = {"penstock.slow.request.ms": "0", "penstock.flush": "group"}
    with broker(config=config) as found:
        yield found


def slow(events: Events, api: str, client_id: str) -> list[dict[str, Any]]:
    found = (fields for _, fields in events.of("request_slow"))
    return [each for each in found if (each["api"], each["client_id"]) == (api, client_id)]


def test_a_produce_request_is_logged_with_its_offsets_and_flush(
    running: BrokerThread, events: Events
) -> None:
    with RawClient(running.bootstrap, "writer") as client:
        topic = create_topic(client, new_name())
        append(client, topic, b"a", b"b", b"c")
        append(client, topic, b"d", b"e")
        eventually(lambda: len(slow(events, "Produce", "writer")) == 2)
        first, second = slow(events, "Produce", "writer")
        assert first["partitions"] == f"{topic.name}-0@0+3"
        assert second["partitions"] == f"{topic.name}-0@3+2"
        assert first["total_ms"] >= first["wait_ms"] >= first["flush_ms"] > 0
        assert (first["version"] > 0, first["listener"]) == (True, "PLAINTEXT")


def test_the_threshold_changes_while_the_broker_runs(events: Events) -> None:
    patient = {"penstock.slow.request.ms": "60000"}
    with broker(config=patient) as running, RawClient(running.bootstrap, "writer") as client:
        topic = create_topic(client, new_name())
        append(client, topic, b"quick")
        assert slow(events, "Produce", "writer") == []
        assert alter(client, BROKER, DEFAULT_BROKER, ("penstock.slow.request.ms", SET, "0"))[0] == 0
        append(client, topic, b"slow", b"er")
        # Answered at once: the count comes from the request, and the offset from the response.
        eventually(lambda: bool(slow(events, "Produce", "writer")))
        assert slow(events, "Produce", "writer")[0]["partitions"] == f"{topic.name}-0@1+2"
        request = FetchRequest(
            max_wait_ms=0,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic.name, partitions=[FetchPartition(partition=0, fetch_offset=1)])],
        )
        client.call(FETCH, 11, request)
        eventually(lambda: bool(slow(events, "Fetch", "writer")))
        assert slow(events, "Fetch", "writer")[0]["partitions"].startswith(f"{topic.name}-0@1")
        assert running.broker.stages.storage.metrics.apis["Produce"].slow == 1
        assert alter(client, BROKER, DEFAULT_BROKER, ("penstock.slow.request.ms", SET, "-1"))[0] == 0
        append(client, topic, b"slow")
        assert len(slow(events, "Produce", "writer")) == 1
