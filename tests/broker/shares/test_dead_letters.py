"""Dead letters (KIP-1191) on the wire: when they are written, and their headers."""

from __future__ import annotations

import asyncio

from confluent_kafka.admin import AdminClient, NewTopic

from penstock import Queue
from penstock.model.ids import TopicId
from penstock.testing import QueueCluster, cluster
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, create_topic, describe_topic, new_name, read_all, until
from tests.broker.share_groups import (
    ACCEPT,
    REJECT,
    RELEASE,
    TOPIC_RESOURCE,
    Member,
    append,
    offsets,
    set_configs,
    set_group_configs,
)
from tests.testing.cluster_clients import CLIENT, PATIENCE_S, produce, read


def dead_letter_topic(client: RawClient, group: str, *, copies: bool = True, enabled: bool = True) -> Topic:
    topic = create_topic(client, new_name("dlq."))
    if enabled:
        set_configs(client, TOPIC_RESOURCE, topic.name, errors_deadletterqueue_group_enable="true")
    set_group_configs(
        client,
        group,
        errors_deadletterqueue_topic_name=topic.name,
        errors_deadletterqueue_copy_record_enable=str(copies).lower(),
        share_delivery_count_limit="2",
    )
    return topic


def test_rejected_records(client: RawClient, topic: Topic, group: str) -> None:
    dead = dead_letter_topic(client, group)
    append(client, topic, b"a", b"b", b"c")
    member = Member(client, group, topic).join()
    assert member.take() == [(0, 2, 1)]
    assert member.outcome((0, 2, [ACCEPT, REJECT, ACCEPT])) == "NONE"
    (letter,) = read_all(client, dead)
    assert letter.value == b"b"
    assert dict(letter.headers) == {
        "__dlq.errors.topic": topic.name.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"1",
        "__dlq.errors.group": group.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Record rejected by the consumer.",
    }
    assert offsets(client, group) == [(3, 0)]


def test_records_whose_last_delivery_fails(penstock_queues: QueueCluster) -> None:
    """Released, and with an expired lock; without copies the dead letters have headers only."""
    with RawClient(penstock_queues.bootstrap) as client:
        topic, group = create_topic(client), "group"
        set_group_configs(client, group, share_auto_offset_reset="earliest")
        set_group_configs(client, group, share_record_lock_duration_ms="20000")
        dead = dead_letter_topic(client, group, copies=False)
        append(client, topic, b"a", b"b")
        member = Member(client, group, topic).join()
        assert member.take() == [(0, 1, 1)]
        assert member.outcome((0, 1, [RELEASE])) == "NONE"
        assert member.take() == [(0, 1, 2)]
        assert member.outcome((0, 0, [RELEASE])) == "NONE"
        penstock_queues.advance(20.1)
        until(lambda: offsets(client, group) == [(2, 0)])
        assert member.fetch(max_wait_ms=1)[1] is None
        found = read_all(client, dead)
    assert [(r.key, r.value) for r in found] == [(None, None)] * 2
    assert [dict(r.headers)["__dlq.errors.offset"] for r in found] == [b"0", b"1"]
    assert {dict(r.headers)["__dlq.errors.message"] for r in found} == {b"Delivery count limit exceeded."}


def test_a_topic_without_the_config_takes_no_dead_letters(
    client: RawClient, topic: Topic, group: str
) -> None:
    """The record is archived all the same."""
    dead = dead_letter_topic(client, group, enabled=False)
    append(client, topic, b"a")
    member = Member(client, group, topic).join()
    member.take()
    assert member.outcome((0, 0, [REJECT])) == "NONE"
    assert read_all(client, dead) == []
    assert offsets(client, group) == [(1, 0)]


def test_a_missing_topic_is_created(client: RawClient, topic: Topic, group: str) -> None:
    name = new_name("dlq.")
    set_group_configs(client, group, errors_deadletterqueue_topic_name=name)
    append(client, topic, b"a")
    member = Member(client, group, topic).join()
    member.take()
    assert member.outcome((0, 0, [REJECT])) == "NONE"
    created = Topic(name, TopicId(describe_topic(client, name).topic_id))
    assert len(read_all(client, created)) == 1


def test_letters_of_other_brokers() -> None:
    """Leaders of three partitions send letters to the leader of one, while brokers get other requests."""
    count = 300
    with cluster(3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        new = [NewTopic("jobs", 3, 3), NewTopic("dlq.jobs", 1, 3, config=enabled)]
        for made in admin.create_topics(new).values():
            made.result(timeout=PATIENCE_S)
        produce(running, "jobs", *(b"%d" % i for i in range(count)), **{"linger.ms": 0})
        asyncio.run(_reject_all(running.bootstrap, count))
        assert sorted(read(running, "dlq.jobs", count), key=int) == [b"%d" % i for i in range(count)]


async def _reject_all(bootstrap: str, count: int) -> None:
    letters = {
        "errors.deadletterqueue.topic.name": "dlq.jobs",
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    queue = Queue(
        bootstrap, "jobs", group="workers", acknowledgement="explicit", max_batch=5, group_config=letters
    )
    async with queue, asyncio.timeout(PATIENCE_S):
        while count:
            messages = await queue.poll(wait=1)
            await asyncio.gather(*(message.reject() for message in messages))
            count -= len(messages)
