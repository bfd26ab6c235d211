"""Groups as librdkafka lives in them, in both protocols: joins, leaves, crashes, restarts, migration."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from lab.penstock import penstock
from lab.server import Server

#: long enough that no member loses its session because the machine is busy, but shorter than a close may take
SESSION_MS = 10_000
#: for a member that is to lose its session
SHORT_SESSION_MS = 1500
#: quick rounds
SETTINGS = {
    "penstock.log.level": "warning",
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "500",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}
PROTOCOLS = ["range", "cooperative-sticky", "consumer"]
CLOSE_S = 20
PATIENCE_S = 60.0
#: processes that say again and again which partitions their members have: one member, and fifty
LONELY_MEMBER = """
import json, sys
from confluent_kafka import Consumer
consumer = Consumer(json.loads(sys.argv[1]))
consumer.subscribe([sys.argv[2]])
while True:
    consumer.poll(0.1)
    print(json.dumps([p.partition for p in consumer.assignment()]), flush=True)
"""
CROWD = """
import json, sys
from confluent_kafka import Consumer
members = [Consumer(json.loads(sys.argv[1])) for _ in range(50)]
for member in members:
    member.subscribe([sys.argv[2]])
while True:
    for member in members:
        member.poll(0.02)
    print(json.dumps([[p.partition for p in member.assignment()] for member in members]), flush=True)
"""
_numbers = count()
Member: TypeAlias = Any


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = penstock(tmp_path_factory.mktemp("groups"), SETTINGS)
    server.start()
    try:
        yield server
        assert server.healthy()
    finally:
        server.stop()
    assert "handler_failed" not in server.log.read_text()


@pytest.fixture
def bootstrap(server: Server) -> str:
    return server.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"grouped-{next(_numbers)}"
    make_topic(bootstrap, name, 4)
    return name


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result(PATIENCE_S)


def set_group_config(bootstrap: str, group: str, key: str, value: str) -> None:
    resource = ConfigResource(ResourceType.GROUP, group)
    resource.add_incremental_config(ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def with_sessions(bootstrap: str, group: str, protocol: str, session_ms: int) -> dict[str, Any]:
    """The settings of members, so that they have sessions of that length."""
    if protocol != "consumer":
        return {"session_timeout_ms": session_ms}
    set_group_config(bootstrap, group, "consumer.session.timeout.ms", str(session_ms))
    return {}


def configured(bootstrap: str, group: str, protocol: str, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 500,
        "log_level": 0,
    }
    if protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config |= {
            "partition.assignment.strategy": protocol,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 100,
        }
    return config | {key.replace("_", "."): value for key, value in more.items()}


@contextmanager
def member(
    bootstrap: str,
    group: str,
    protocol: str,
    topics: list[str],
    rounds: list[str] | None = None,
    **more: Any,
) -> Iterator[Member]:
    """A consumer in the group; `rounds` grows with everything that it is given or loses."""
    consumer = Consumer(configured(bootstrap, group, protocol, **more))
    if rounds is None:
        # Without callbacks librdkafka assigns by itself: with them it may wait for itself when it closes.
        consumer.subscribe(topics)
    else:
        consumer.subscribe(
            topics,
            on_assign=lambda *_: rounds.append("assigned"),
            on_revoke=lambda *_: rounds.append("revoked"),
        )
    try:
        yield consumer
    finally:
        # librdkafka can lose the answer to its own unassign while it closes, and then waits for ever, out of
        # reach of a test's time limit. That is between it and itself: the broker has answered everything.
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(CLOSE_S)


class Sayings:
    """What another process says, a JSON value per line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __iter__(self) -> Iterator[Any]:
        assert self._process.stdout is not None
        return map(json.loads, self._process.stdout)

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)


@contextmanager
def another_process(script: str, config: dict[str, Any], topic: str) -> Iterator[Sayings]:
    """Members that end with their process, without leaving their group.

    If members of the new protocol close while others do, librdkafka 2.16 can wait for itself for ever, with
    Apache Kafka as with us: an assignment that comes after its part of the group has ended gets no answer.
    """
    command = [sys.executable, "-c", script, json.dumps(config), topic]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Sayings(process)
    finally:
        process.kill()
        process.communicate()


def until(condition: Callable[[], bool], *members: Member, what: str = "it") -> None:
    """Poll the members until `condition` holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        for each in members:
            message = each.poll(0.02)
            error = None if message is None else message.error()
            # A process that stood still for long has not polled; its member comes back by itself.
            assert error is None or error.code() == KafkaError._MAX_POLL_EXCEEDED, error


def owned(consumer: Member) -> set[int]:
    return {p.partition for p in consumer.assignment()}


def divided(*members: Member, partitions: int = 4) -> Callable[[], bool]:
    """Whether the members have all partitions between them, none twice, and none of them nothing."""

    def holds() -> bool:
        shares = [owned(each) for each in members]
        return all(shares) and sorted(p for share in shares for p in share) == list(range(partitions))

    return holds


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0


def consume(consumer: Member, number: int) -> list[str]:
    values: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(values) < number and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value().decode())
    return values


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        found = reader.committed([TopicPartition(topic, p) for p in range(4)], timeout=PATIENCE_S)
        return {p.partition: p.offset for p in found if p.offset >= 0}
    finally:
        reader.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    with member(bootstrap, group, protocol, [topic]) as first:
        until(divided(first), first)
        with member(bootstrap, group, protocol, [topic]) as second:
            until(divided(first, second), first, second)
        until(divided(first), first, what="what the other one had")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_work_goes_on_where_it_was_committed(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    produce(bootstrap, topic, [f"old {i}" for i in range(40)])
    with member(bootstrap, group, protocol, [topic]) as first:
        assert len(consume(first, 40)) == 40
        first.commit(asynchronous=False)
    produce(bootstrap, topic, [f"new {i}" for i in range(40)])

    with member(bootstrap, group, protocol, [topic]) as second:
        assert sorted(consume(second, 40)) == sorted(f"new {i}" for i in range(40))
        assert committed(bootstrap, group, topic) == dict.fromkeys(range(4), 10)


@pytest.mark.process
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_crashes_is_replaced(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    """It stops sending heartbeats: its process is there, but does not serve its sockets."""
    short = with_sessions(bootstrap, group, protocol, SHORT_SESSION_MS)
    with another_process(LONELY_MEMBER, configured(bootstrap, group, protocol, **short), topic) as said:
        next(share for share in said if len(share) == 4)
        said.pause()
        with member(bootstrap, group, protocol, [topic]) as second:
            until(divided(second), second)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_that_restarts_causes_no_rebalance(
    bootstrap: str, topic: str, group: str, protocol: str
) -> None:
    """KIP-345: within its session it gets its partitions back, without a rebalance."""
    patient = with_sessions(bootstrap, group, protocol, 3 * SESSION_MS)
    static = {"group_instance_id": "here"} | patient
    with ExitStack() as stack:
        rounds: list[str] = []
        other = stack.enter_context(member(bootstrap, group, protocol, [topic], rounds, **patient))
        first = Consumer(configured(bootstrap, group, protocol, **static))
        first.subscribe([topic])
        is_shared = divided(first, other)
        # A classic member that gave partitions up is told in the next round that it gets no others.
        until(
            lambda: is_shared() and (protocol == "consumer" or rounds[-1] == "assigned"),
            first,
            other,
        )
        share = owned(first)
        rounds.clear()
        first.close()
        with member(bootstrap, group, protocol, [topic], **static) as again:
            until(divided(again, other), again, other)
            assert owned(again) == share
        assert not rounds


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partitions_that_are_added_get_readers(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    with (
        member(bootstrap, group, protocol, [topic]) as first,
        member(bootstrap, group, protocol, [topic]) as second,
    ):
        until(divided(first, second), first, second)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(topic, 6)])[topic].result(PATIENCE_S)
        until(divided(first, second, partitions=6), first, second)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_stops_polling_is_out(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    """`max.poll.interval.ms`: its heartbeats go on, but it leaves by itself."""
    session = with_sessions(bootstrap, group, protocol, SHORT_SESSION_MS)
    with (
        member(bootstrap, group, protocol, [topic], max_poll_interval_ms=3500, **session) as stuck,
        member(bootstrap, group, protocol, [topic]) as other,
    ):
        until(divided(stuck, other), stuck, other)
        until(lambda: owned(other) == {0, 1, 2, 3}, other, what="the share of the one that does not poll")


@pytest.mark.process
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_fifty_members_join_at_once(bootstrap: str, group: str, protocol: str) -> None:
    name = f"wide-{next(_numbers)}"
    make_topic(bootstrap, name, 50)
    with another_process(CROWD, configured(bootstrap, group, protocol), name) as said:
        deadline = time.monotonic() + 2 * PATIENCE_S
        for shares in said:
            if all(shares) and sorted(p for share in shares for p in share) == list(range(50)):
                return
            assert time.monotonic() < deadline, f"not divided among fifty: {shares}"
        pytest.fail("the process of the fifty members has ended")


def test_a_regular_expression_follows_the_topics(bootstrap: str, group: str) -> None:
    prefix = f"pattern{next(_numbers)}"
    make_topic(bootstrap, f"{prefix}-a", 1)
    with member(bootstrap, group, "consumer", [f"^{prefix}-.*"]) as consumer:
        until(lambda: {p.topic for p in consumer.assignment()} == {f"{prefix}-a"}, consumer)
        make_topic(bootstrap, f"{prefix}-b", 1)
        until(lambda: {p.topic for p in consumer.assignment()} == {f"{prefix}-a", f"{prefix}-b"}, consumer)


def test_a_group_changes_protocol_while_it_works(bootstrap: str, topic: str, group: str) -> None:
    """A classic member, one of the new protocol beside it, and classic ones alone again."""
    with member(bootstrap, group, "cooperative-sticky", [topic]) as classic:
        until(divided(classic), classic)
        with member(bootstrap, group, "consumer", [topic]) as modern:
            until(divided(classic, modern), classic, modern)
        until(divided(classic), classic, what="the group to be classic again")
        with member(bootstrap, group, "cooperative-sticky", [topic]) as second:
            until(divided(classic, second), classic, second)
