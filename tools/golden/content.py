"""Fills a broker with everything that a data directory can have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import Queue
from penstock.cli.direct import DirectLine
from penstock.cli.quotas import alter_quotas
from penstock.net.access_client import add_acls, alter_members, set_password
from penstock.security.acls import Acl

__all__ = ["fill", "fill_basics", "leave_open"]

_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.1
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
#: 2026-10-14, in milliseconds since 1970: the time of the first record; each one behind it is an hour later
_TIME_MS: Final = 1_792_000_000_000
_HOUR_MS: Final = 3_600_000
#: topic, group and operation of ACLs, as Kafka numbers them; a literal name, allowed
_TOPIC, _GROUP, _READ, _WRITE, _LITERAL, _PREFIXED, _ALLOW, _DENY = 2, 3, 3, 4, 3, 4, 3, 2
_SCRAM: Final = "SCRAM-SHA-512"


def fill_basics(bootstrap: str) -> None:
    """Topics of each kind, and groups of both protocols: what the first versions had, too."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    # A segment has the records of ten hours.
    small = {"segment.ms": str(10 * _HOUR_MS), "retention.ms": "-1"}
    compacted = {
        **small,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "9000000000000",
    }
    topics = [
        NewTopic("plain", 3, 1, config=small),
        NewTopic("compacted", 1, 1, config=compacted),
        NewTopic("codecs", len(_CODECS), 1, config=small),
    ]
    for made in admin.create_topics(topics).values():
        made.result(_PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(60):
        headers: list[tuple[str, Any]] = [("n", b"%d" % number), ("empty", None)] if number % 7 == 0 else []
        _send(
            producer,
            "plain",
            number % 3,
            None if number % 5 == 0 else f"k{number}",
            f"v{number}",
            headers,
            number,
        )
        producer.flush(_PATIENCE_S)
    for number in range(200):
        _send(
            producer,
            "compacted",
            0,
            f"k{number % 10}",
            None if number % 10 == 9 else f"v{number}",
            [],
            number,
        )
        producer.flush(_PATIENCE_S)
    for partition, codec in enumerate(_CODECS):
        coded = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 200})
        for number in range(20):
            _send(coded, "codecs", partition, "k", f"{codec}-{number} " + "x" * 40, [])
        coded.flush(_PATIENCE_S)
    _until("the compacted topic is compacted", lambda: _count(bootstrap, "compacted") < 60)
    _delete_records(admin)
    for protocol in ("classic", "consumer"):
        _commit(bootstrap, protocol)


def fill(bootstrap: str) -> None:
    """The rest: transactions, a share group, ACLs, roles, SCRAM users, quotas."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = ("ledger", "jobs", "pending")
    for made in admin.create_topics(
        [NewTopic(name, 1, 1, config={"retention.ms": "-1"}) for name in names]
    ).values():
        made.result(_PATIENCE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "golden-ledger"})
    producer.init_transactions(_PATIENCE_S)
    for number in range(8):
        producer.begin_transaction()
        _send(producer, "ledger", 0, None, f"{'kept' if number % 2 else 'aborted'}-{number}", [])
        producer.flush(_PATIENCE_S)
        if number % 2:
            producer.commit_transaction(_PATIENCE_S)
        else:
            producer.abort_transaction(_PATIENCE_S)
    jobs = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        _send(jobs, "jobs", 0, None, f"job-{number}", [])
    jobs.flush(_PATIENCE_S)
    asyncio.run(_work(bootstrap))
    with DirectLine(bootstrap, _PATIENCE_S) as line:
        acls = [
            Acl(_TOPIC, "plain", _LITERAL, "User:ada", "*", _READ, _ALLOW),
            Acl(_TOPIC, "co", _PREFIXED, "User:bob", "127.0.0.1", _WRITE, _DENY),
            Acl(_GROUP, "classic", _LITERAL, "User:ada", "*", _READ, _ALLOW),
        ]
        line.run(lambda port: add_acls(port, acls))
        line.run(lambda port: alter_members(port, "readers", ["User:ada", "User:eve"], True))
        line.run(lambda port: set_password(port, "ada", _SCRAM, "golden", 4096))
        alter_quotas(line, {"user": "ada"}, {"producer_byte_rate": 1048576.0}, validate=False)
        alter_quotas(line, {"client-id": None}, {"request_percentage": 50.0}, validate=False)


def leave_open(bootstrap: str) -> Producer:
    """Begin a transaction that the end of the broker leaves open; the producer must live until then."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "golden-open",
            "transaction.timeout.ms": 900_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(_PATIENCE_S)
    producer.begin_transaction()
    _send(producer, "pending", 0, None, "open", [])
    producer.flush(_PATIENCE_S)
    return producer


def _send(
    producer: Producer,
    topic: str,
    partition: int,
    key: str | None,
    value: str | None,
    headers: list[Any],
    hour: int = 0,
) -> None:
    producer.produce(
        topic,
        None if value is None else value.encode(),
        None if key is None else key.encode(),
        partition,
        timestamp=_TIME_MS + hour * _HOUR_MS,
        headers=headers,
    )


def _delete_records(admin: AdminClient) -> None:
    """Move the log start of one partition."""
    admin.delete_records([TopicPartition("plain", 2, 5)])[TopicPartition("plain", 2)].result(_PATIENCE_S)


def _commit(bootstrap: str, protocol: str) -> None:
    """Consume and commit as a group of this protocol, named like it."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": protocol,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["plain", "compacted"])
    seen = 0
    deadline = time.monotonic() + _PATIENCE_S
    while seen < 40:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the group {protocol} got {seen} records")
        seen += sum(message.error() is None for message in consumer.consume(10, _PAUSE_S))
    consumer.commit(
        offsets=[TopicPartition("plain", 0, 7, metadata="seven"), TopicPartition("plain", 1, 3)],
        asynchronous=False,
    )
    consumer.close()


async def _work(bootstrap: str) -> None:
    """Accept six jobs, release one, and leave the others."""
    async with Queue(bootstrap, "jobs", group="workers", acknowledgement="explicit", max_batch=7) as queue:
        done = 0
        async for message in queue:
            number = int(message.value.rpartition(b"-")[2])
            if number < 6:
                await message.accept()
            else:
                message.release()
            done += 1
            if done == 7:
                queue.stop()


def _count(bootstrap: str, topic: str) -> int:
    from tools.golden.reading import records

    return len(records(bootstrap, topic, 0, "read_uncommitted"))


def _until(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(_PAUSE_S)
