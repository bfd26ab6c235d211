"""Delay topics: messages reach their target at their time, once, also after a change of the leader."""

from __future__ import annotations

import time

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import broker, cluster
from tests.broker.authorization.acls import CONFIG, Admin
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    create_topic,
    delete_topic,
    list_offset,
    new_name,
    now_ms,
    produce,
    read_all,
    record,
    request_topic,
    until,
)
from tests.testing.cluster_clients import create, producer, read

FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}


def delay_topic(client: RawClient, target: str) -> Topic:
    return create_topic(client, new_name("delay"), configs={**FOREVER, "penstock.delay.target": target})


def delayed(value: bytes, at_ms: int, key: bytes | None = None) -> bytes:
    headers = (("trace", b"t"), ("penstock-deliver-at", str(at_ms).encode()))
    return batch_of([record(value, key=key, headers=headers)])


def test_messages_are_moved_when_they_are_due(client: RawClient) -> None:
    target = create_topic(client)
    topic = delay_topic(client, target.name)
    began = time.monotonic()
    now = now_ms()
    produce(client, topic, delayed(b"late", now + 900, b"k"))
    produce(client, topic, delayed(b"soon", now + 300))
    produce(client, topic, batch_of([b"at once"]))
    produce(client, topic, delayed(b"never", now + 86_400_000))
    until(lambda: len(read_all(client, target)) == 3)
    assert time.monotonic() - began >= 0.85
    found = read_all(client, target)
    assert [r.value for r in found] == [b"at once", b"soon", b"late"]
    assert (found[-1].key, found[-1].headers) == (b"k", (("trace", b"t"),))
    start = list_offset(client, topic, -2).offset
    assert b"never" in [r.value for r in read_all(client, topic, start)]


@pytest.mark.parametrize("target", ["__consumer_offsets", "itself", "another"])
def test_internal_topics_and_delay_topics_are_no_targets(client: RawClient, target: str) -> None:
    """A message would be moved again and again."""
    name = new_name("delay")
    other = delay_topic(client, "nowhere").name if target == "another" else target
    wanted = name if target == "itself" else other
    topic = create_topic(client, name, configs={**FOREVER, "penstock.delay.target": wanted})
    produce(client, topic, batch_of([b"a"]))
    moved = create_topic(client)
    probe = delay_topic(client, moved.name)
    produce(client, probe, batch_of([b"b"]))
    until(lambda: len(read_all(client, moved)) == 1)
    assert [r.value for r in read_all(client, topic)] == [b"a"]


def test_finished_messages_leave_the_delay_topic(client: RawClient) -> None:
    target = create_topic(client)
    topic = delay_topic(client, target.name)
    produce(client, topic, batch_of([b"a", b"b"]))
    until(lambda: len(read_all(client, target)) == 2)
    until(lambda: list_offset(client, topic, -2).offset == 2)


@pytest.mark.parametrize(
    "configs", [{}, {**FOREVER, "retention.bytes": "9"}, {**FOREVER, "cleanup.policy": "compact"}]
)
def test_a_delay_topic_keeps_its_messages(client: RawClient, configs: dict[str, str]) -> None:
    result = request_topic(client, new_name(), configs={**configs, "penstock.delay.target": "x"})
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert "must not be deleted" in (result.error_message or "")


def test_with_an_authorizer_the_target_has_to_agree() -> None:
    with broker(config=CONFIG) as running, Admin(running.bootstrap) as admin:
        closed = create_topic(admin)
        agreed = create_topic(admin, configs={"penstock.delay.source.enable": "true"})
        produce(admin, delay_topic(admin, closed.name), batch_of([b"a"]))
        produce(admin, delay_topic(admin, agreed.name), batch_of([b"b"]))
        until(lambda: len(read_all(admin, agreed)) == 1)
        assert read_all(admin, closed) == []


def test_leaders_are_killed() -> None:
    """Each message is in the target once, whichever broker has moved it."""
    with cluster(3) as running:
        create(running, "orders")
        create(running, "later", **FOREVER, **{"penstock.delay.target": "orders"})
        sender = producer(running)
        now = now_ms()
        count = 60
        for i in range(count):
            at = str(now + 30 * i).encode()
            sender.produce("later", b"%d" % i, headers=[("penstock-deliver-at", at)])
        assert sender.flush(30) == 0
        for topic in ("later", "orders"):
            victim = running.wait_for_leader(topic)
            running.kill(victim)
            running.wait_for_leader(topic, other_than=victim)
            running.start(victim)
        found = read(running, "orders", count)
        assert sorted(found, key=int) == [b"%d" % i for i in range(count)]
        running.wait_for_isr("orders")


def test_a_target_that_is_created_again_gets_messages(client: RawClient) -> None:
    """It does not know the producer id of the mover, nor its sequence."""
    target = create_topic(client)
    topic = delay_topic(client, target.name)
    produce(client, topic, batch_of([b"a"]))
    until(lambda: len(read_all(client, target)) == 1)
    delete_topic(client, target)
    target = create_topic(client, target.name)
    produce(client, topic, batch_of([b"b"]))
    until(lambda: [r.value for r in read_all(client, target)] == [b"b"])
