"""Delay topics: messages reach their target at their time, once, also after a change of the leader."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.broker.shares import delay_topics
from penstock.broker.shares.delay_topics import DelayTopics
from penstock.metadata.image import TOPIC
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.records.record import Record
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
from tests.storage.compacted import InlineWorkers
from tests.storage.logs import StillClock
from tests.testing.cluster_clients import CLIENT, PATIENCE_S, create, producer, read

FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}


def delay_topic(client: RawClient, target: str) -> Topic:
    return create_topic(client, new_name("delay"), configs={**FOREVER, "penstock.delay.target": target})


def delayed(value: bytes, at_ms: int, key: bytes | None = None) -> Record:
    headers = (("trace", b"t"), ("penstock-deliver-at", str(at_ms).encode()))
    return record(value, key=key, headers=headers)


def test_messages_are_moved_when_they_are_due(client: RawClient) -> None:
    target = create_topic(client)
    topic = delay_topic(client, target.name)
    began = time.monotonic()
    now = now_ms()
    # In one batch: the broker knows all of them before any is due, or knows that several are due.
    late, soon = delayed(b"late", now + 900, b"k"), delayed(b"soon", now + 300)
    produce(client, topic, batch_of([late, soon, b"at once", delayed(b"never", now + 86_400_000)]))
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


def test_more_bytes_are_due_than_a_batch_may_have(client: RawClient) -> None:
    """Together they are larger than max.message.bytes."""
    target = create_topic(client)
    topic = delay_topic(client, target.name)
    at = now_ms() + 300
    header = ("penstock-deliver-at", str(at).encode())
    for _ in range(18):
        produce(client, topic, batch_of([record(b"x" * 6000, headers=(header,)) for _ in range(10)]))
    until(lambda: len(read_all(client, target)) == 180)
    until(lambda: list_offset(client, topic, -2).offset >= 180)


def test_finished_messages_leave_the_delay_topic(client: RawClient) -> None:
    target = create_topic(client)
    topic = delay_topic(client, target.name)
    produce(client, topic, batch_of([b"a", b"b"]))
    until(lambda: len(read_all(client, target)) == 2)
    until(lambda: list_offset(client, topic, -2).offset == 4)


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
        agreed = create_topic(admin, configs={"penstock.delay.source.enable": "TRUE"})
        produce(admin, delay_topic(admin, closed.name), batch_of([b"a"]))
        produce(admin, delay_topic(admin, f" {agreed.name}"), batch_of([b"b"]))
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
        assert sender.flush(60) == 0
        for topic in ("later", "orders"):
            victim = running.wait_for_leader(topic)
            running.kill(victim)
            running.wait_for_leader(topic, other_than=victim)
            running.start(victim)
        found = read(running, "orders", count)
        assert sorted(found, key=int) == [b"%d" % i for i in range(count)]
        running.wait_for_isr("orders")


def test_movers_send_their_batches_to_other_brokers() -> None:
    """While brokers get other requests, too. A batch that a target refuses would wait for a minute."""
    partitions, count = 4, 800
    with cluster(3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        delays = {**FOREVER, "penstock.delay.target": "orders"}
        new = [NewTopic("orders", partitions, 3), NewTopic("later", partitions, 3, config=delays)]
        for made in admin.create_topics(new).values():
            made.result(timeout=PATIENCE_S)
        sender = producer(running, **{"linger.ms": 0})
        now = now_ms()
        for i in range(count):
            at = str(now + 3 * i).encode()
            sender.produce("later", b"%d" % i, key=b"%d" % i, headers=[("penstock-deliver-at", at)])
        assert sender.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "unused", **CLIENT})
        consumer.assign([TopicPartition("orders", index, 0) for index in range(partitions)])
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(set(found)) < count and time.monotonic() < deadline:
            found += [message.value() for message in consumer.consume(count, 0.2)]
        consumer.close()
        assert sorted(found, key=int) == [b"%d" % i for i in range(count)]


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


def test_a_broker_without_delay_topics_looks_for_them_rarely() -> None:
    """Each look wakes up an idle process. A new delay topic is noticed at once (`metadata_changed`)."""
    image: Any = SimpleNamespace(configs={(TOPIC, "orders"): {"retention.ms": "1"}})
    none: Any = None
    topics = DelayTopics(image, none, StillClock(), InlineWorkers(), none, lambda: 1, lambda: 9, False)
    assert topics.interval_s == 10.0
    image.configs[TOPIC, "later"] = {"penstock.delay.target": "orders"}
    assert topics.interval_s == 0.5


class _Led:
    """A partition that this broker leads."""

    leader_epoch = 1
    leading = True


def test_a_mover_that_fails_is_started_after_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start reads the whole delay partition."""
    starts: list[int] = []
    clock = StillClock(0)

    class Failing:
        def __init__(self, *parts: Any) -> None:
            starts.append(clock.ms)

        async def run(self) -> None:
            raise OverflowError

    async def play() -> None:
        partition: Any = _Led()
        image: Any = SimpleNamespace(
            configs={(TOPIC, "later"): {"penstock.delay.target": "orders"}},
            topics={"later": SimpleNamespace(partitions=[0])},
        )
        partitions: Any = SimpleNamespace(find=lambda name, index: partition)
        writer: Any = None
        topics = DelayTopics(image, partitions, clock, InlineWorkers(), writer, lambda: 1, lambda: 9, False)
        for clock.ms in range(0, 100_000, 500):
            topics.review()
            await asyncio.sleep(0)
        gaps = [after - before for before, after in pairwise(starts)]
        assert gaps == [1000, 1500, 2500, 4500, 8500, 16500, 30500, 30500]
        starts.clear()
        partition.leader_epoch += 1
        topics.review()
        assert len(starts) == 1, "another term starts at once"

    monkeypatch.setattr(delay_topics, "DelayMover", Failing)
    asyncio.run(play())


def test_the_limit_of_a_target_without_configs_is_that_of_the_brokers() -> None:
    """A message of a larger size keeps the codec of its producer."""
    config = BrokerConfig({"message.max.bytes": "262144"})
    configs = {"small": {"max.message.bytes": "5000"}}
    image: Any = SimpleNamespace(topic_configs=lambda name: configs.get(name, {}))
    parts: Any = None
    topics = DelayTopics(
        image, parts, StillClock(), InlineWorkers(), parts, lambda: 1, lambda: config.message_max_bytes, False
    )
    limit = topics._parts.message_bytes_max
    assert (limit("orders"), limit("small")) == (262_144, 5000)
    config.set_dynamic(dynamic_default={"message.max.bytes": "99999"})
    assert limit("orders") == 99_999
