"""Reads and writes of chosen topics: one event for each principal, topic, operation and window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.base import data_access
from penstock.broker.base.data_access import READ, WRITE, Access, DataAccess
from penstock.broker.fetch.repeated_client import RepeatedClientFetches
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, ResourceType
from penstock.security.principal import Principal, Session
from penstock.storage.memory import MemoryFiles
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.produce import PRODUCE
from tests.broker.authorization.acls import CONFIG, Admin
from tests.broker.disks import BrokerOnDisk, on_disk
from tests.broker.events import Events
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    batch_of,
    create_topic,
    fetch,
    fetch_request,
    new_name,
    produce,
    produce_request,
    wanted,
)
from tests.broker.share_groups import Member, set_group_configs

Timers = list[tuple[float, Callable[[], None]]]
ALICE, BOB = (Session(Principal("User", name), "CLIENTS", "10.0.0.1") for name in ("alice", "bob"))


def counting(*patterns: str) -> tuple[DataAccess, list[Access], Timers, list[int]]:
    found: list[Access] = []
    timers: Timers = []
    left_out: list[int] = []
    image: Any = SimpleNamespace(topics_by_id={})
    made = DataAccess(
        patterns, 60.0, image, found.append, left_out.append, lambda s, call: timers.append((s, call))
    )
    return made, found, timers, left_out


def test_topics_are_named_or_have_a_prefix() -> None:
    accesses, *_ = counting("payments", "hr-*")
    assert [accesses.watches(name) for name in ("payments", "payments2", "hr-", "hr-x", "hr", "x")] == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]
    everything, *_ = counting("*")
    assert everything.watches("x")


def test_a_window_has_one_count_for_each_principal_topic_and_operation() -> None:
    accesses, found, timers, _ = counting("*")
    for _ in range(1000):
        accesses.note(ALICE, READ, "t", 10)
    accesses.note(ALICE, WRITE, "t", 1)
    accesses.note(BOB, READ, "t", 2)
    accesses.note(BOB, READ, "u", 3)
    assert not found and [seconds for seconds, _ in timers] == [60.0]
    timers.pop()[1]()
    counts = [(str(a.session.principal), a.operation, a.topic, a.accesses, a.bytes) for a in found]
    assert counts == [
        ("User:alice", READ, "t", 1000, 10_000),
        ("User:alice", WRITE, "t", 1, 1),
        ("User:bob", READ, "t", 1, 2),
        ("User:bob", READ, "u", 1, 3),
    ]
    assert not timers, "without an access there is no window"
    accesses.note(ALICE, READ, "t", 1)
    accesses.close()
    assert found[-1].accesses == 1


def test_addresses_are_samples() -> None:
    accesses, found, _, _ = counting("*")
    for n in range(20):
        accesses.note(Session(ALICE.principal, "CLIENTS", f"10.0.0.{n}"), READ, "t", 1)
    accesses.close()
    assert found[0].hosts == [f"10.0.0.{n}" for n in range(5)]


def test_counts_are_bounded_and_written_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_access, "_COUNTS_MAX", 120)
    accesses, found, timers, left_out = counting("*")
    for n in range(130):
        accesses.note(ALICE, READ, f"t{n}", 1)
    timers.pop()[1]()
    assert (len(found), left_out) == (50, [10])
    while timers:
        timers.pop()[1]()
    assert len(found) == 120


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerOnDisk]:
    settings = {
        **CONFIG,
        "penstock.audit.data.topics": "secret-*",
        "penstock.audit.data.window.ms": "600000",
    }
    with on_disk(MemoryFiles(), **settings) as started:
        yield started


@pytest.fixture
def client(running: BrokerOnDisk) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def admin(running: BrokerOnDisk) -> Iterator[Admin]:
    with Admin(running.bootstrap) as connected:
        yield connected
        connected.revoke()


def written(running: BrokerOnDisk, events: Events) -> list[tuple[str, str, int]]:
    """(topic, operation, accesses) of the events, once the window has ended."""
    accesses = running.broker.stages.listening.audit.accesses
    assert accesses is not None
    running.call(accesses.close)
    found = [fields for _, fields in events.of("data_accessed")]
    assert all(fields["bytes"] > 0 and fields["status_id"] == 1 for fields in found)
    return [(fields["resource"], fields["operation"], fields["accesses"]) for fields in found]


@pytest.fixture
def topics(admin: Admin) -> tuple[Topic, Topic]:
    """One that is audited, and one that is not."""
    made = create_topic(admin, f"secret-{new_name()}"), create_topic(admin, f"open-{new_name()}")
    for topic in made:
        for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE):
            admin.allow(operation, ResourceType.TOPIC, topic.name)
    return made


@pytest.mark.parametrize("version", [7, 12, PRODUCE.max_version])
def test_writes_of_chosen_topics_are_audited(
    running: BrokerOnDisk, client: RawClient, topics: tuple[Topic, Topic], events: Events, version: int
) -> None:
    for topic in topics:
        for acks in (1, -1):
            assert not produce(client, topic, batch_of([b"v"]), acks=acks, version=version).error_code
        unanswered = produce_request(topic, batch_of([b"v"]), acks=0, version=version)
        client.send(PRODUCE, version, unanswered, answered=False)
        append(client, topic, b"v")
    assert written(running, events) == [(topics[0].name, WRITE, 4)]


@pytest.mark.parametrize("version", [4, 12, FETCH.max_version])
def test_reads_of_chosen_topics_are_audited(
    running: BrokerOnDisk,
    client: RawClient,
    admin: Admin,
    topics: tuple[Topic, Topic],
    events: Events,
    version: int,
) -> None:
    for topic in topics:
        append(admin, topic, b"v")
    running.call(running.broker.stages.listening.audit.accesses.close)  # type: ignore[union-attr]
    events.all.clear()
    for topic in topics:
        # More often than it takes to recognise a repeated request.
        for _ in range(10):
            assert fetch(client, topic, 0, version=version).records
        assert not fetch(client, topic, 1, version=version).records
    assert written(running, events) == [(topics[0].name, READ, 10)], "a fetch without records is no access"


def test_other_topics_are_still_served_by_repeated_fetches(
    running: BrokerOnDisk, client: RawClient, topics: tuple[Topic, Topic]
) -> None:
    def memo() -> Any:
        (connection,) = [
            c for c in running.broker.stages.listening.server.connections if c.peer == client_peer(client)
        ]
        return connection.memo

    for topic, is_repeated in zip(topics, (False, True), strict=True):
        request = fetch_request([(topic, [wanted(0)])], version=16)
        for _ in range(4):
            client.call(FETCH, 16, request)
        known = running.call(memo)
        assert isinstance(known, RepeatedClientFetches)
        assert (known.last is not None) is is_repeated


def client_peer(client: RawClient) -> str:
    host, port = client.socket.getsockname()
    return f"{host}:{port}"


def test_denied_requests_are_no_access(
    running: BrokerOnDisk, client: RawClient, admin: Admin, events: Events
) -> None:
    topic = create_topic(admin, f"secret-{new_name()}")
    append(admin, topic, b"v")
    running.call(running.broker.stages.listening.audit.accesses.close)  # type: ignore[union-attr]
    events.all.clear()
    assert produce(client, topic, batch_of([b"v"])).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert fetch(client, topic, 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert written(running, events) == []
    assert len(events.of("access_denied")) == 2


def test_deliveries_of_share_groups_are_audited(
    running: BrokerOnDisk, admin: Admin, topics: tuple[Topic, Topic], events: Events
) -> None:
    for topic in topics:
        append(admin, topic, b"v")
        group = new_name("group")
        set_group_configs(admin, group, share_auto_offset_reset="earliest")
        assert Member(admin, group, topic).join().take() == [(0, 0, 1)]
    assert written(running, events) == [(topics[0].name, WRITE, 1), (topics[0].name, READ, 1)]
