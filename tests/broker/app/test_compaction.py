"""Compaction as the running broker does it, in processes of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.app.maintenance import Maintenance, _repeat
from penstock.broker.app.server import system_world
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.records.codecs import Codec
from penstock.records.record import Record
from penstock.storage import cleaner
from penstock.testing import BrokerThread, broker
from tests.broker.configs import BROKER, NODE, TOPIC, set_config
from tests.broker.disks import Disk, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import (
    EARLIEST,
    Topic,
    append,
    batch_of,
    create_topic,
    delete_topic,
    fetch,
    list_offset,
    now_ms,
    produce,
    read_all,
    record,
    until,
    values_in,
)

pytestmark = pytest.mark.process

BUSY = {"log.cleaner.backoff.ms": "10", "log.retention.check.interval.ms": "10"}
COMPACT = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1000",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with broker(data=tmp_path, config=BUSY) as started:
        yield started


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


def put(client: RawClient, topic: Topic, key: bytes, value: bytes | None, codec: Codec = Codec.NONE) -> int:
    answer = produce(client, topic, batch_of([record(value, key=key)], codec))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return answer.base_offset


def seal(client: RawClient, topic: Topic) -> None:
    """Fill the segment being written, so that what was before it can be compacted."""
    for i in range(2):
        put(client, topic, b"filler%d" % i, b"x" * 900)


def table(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {r.key: r.value for r in records}


def of_keys(records: list[Record], prefix: bytes = b"k") -> list[Record]:
    return [r for r in records if r.key is not None and r.key.startswith(prefix)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_latest_value_of_every_key_stays_at_its_offset(client: RawClient, codec: Codec) -> None:
    check_compaction(client, codec)


def test_a_broker_in_memory_compacts_too() -> None:
    with broker(config=BUSY) as running, RawClient(running.bootstrap) as client:
        check_compaction(client, Codec.NONE)


def check_compaction(client: RawClient, codec: Codec) -> None:
    topic = create_topic(client, configs=COMPACT)
    latest: dict[bytes, tuple[bytes, int]] = {}
    for i in range(60):
        key, value = b"k%d" % (i % 7), b"%d" % i * 20
        latest[key] = (value, put(client, topic, key, value, codec))
    seal(client, topic)

    until(lambda: len(of_keys(read_all(client, topic))) == 7)

    found = {r.key: (r.value, r.offset) for r in of_keys(read_all(client, topic))}
    assert found == latest
    assert list_offset(client, topic, EARLIEST).offset == 0


def test_a_fetch_at_an_offset_that_was_compacted_away_goes_on_behind_it(client: RawClient) -> None:
    topic = create_topic(client, configs=COMPACT)
    for i in range(20):
        put(client, topic, b"k", b"%d" % i * 50)
    seal(client, topic)
    until(lambda: len(of_keys(read_all(client, topic))) == 1)

    answer = fetch(client, topic, 3)

    assert answer.error_code == ErrorCode.NONE
    assert values_in(answer)[0] == b"19" * 50


def test_tombstones_take_their_key_with_them(client: RawClient) -> None:
    topic = create_topic(client, configs={**COMPACT, "delete.retention.ms": "0"})
    put(client, topic, b"kept", b"x")
    put(client, topic, b"killed", b"x")
    put(client, topic, b"killed", None)
    seal(client, topic)
    until(lambda: b"killed" not in table(read_all(client, topic)) or _tombstone_alone(client, topic))

    # The first pass sets when a tombstone may go, the next one takes it.
    def gone() -> bool:
        seal(client, topic)
        return b"killed" not in table(read_all(client, topic))

    until(gone)
    assert table(read_all(client, topic))[b"kept"] == b"x"


def _tombstone_alone(client: RawClient, topic: Topic) -> bool:
    return [r.value for r in read_all(client, topic) if r.key == b"killed"] == [None]


def test_tombstones_stay_for_the_retention_of_deletes(client: RawClient) -> None:
    topic = create_topic(client, configs={**COMPACT, "delete.retention.ms": "3600000"})
    put(client, topic, b"killed", b"x")
    put(client, topic, b"killed", None)
    seal(client, topic)

    until(lambda: _tombstone_alone(client, topic))
    for _ in range(3):
        seal(client, topic)
        assert table(read_all(client, topic))[b"killed"] is None


def test_young_records_are_left_alone(client: RawClient) -> None:
    topic = create_topic(client, configs={**COMPACT, "min.compaction.lag.ms": "3600000"})
    witness = create_topic(client, configs=COMPACT)
    for filled in (topic, witness):
        for i in range(20):
            put(client, filled, b"k", b"%d" % i * 50)
        seal(client, filled)

    until(lambda: len(of_keys(read_all(client, witness))) == 1)

    assert len(of_keys(read_all(client, topic))) == 20


def test_a_topic_that_becomes_compacted_is_compacted(client: RawClient) -> None:
    topic = create_topic(client, configs={**COMPACT, "cleanup.policy": "delete"})
    for i in range(20):
        put(client, topic, b"k", b"%d" % i * 50)
    seal(client, topic)

    set_config(client, TOPIC, topic.name, "cleanup.policy", "compact")

    until(lambda: len(of_keys(read_all(client, topic))) == 1)


def test_compact_and_delete_do_both(client: RawClient) -> None:
    configs = {**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": "1000000"}
    topic = create_topic(client, configs=configs)
    old = now_ms() - 3_600_000
    for i in range(5):
        produce(client, topic, batch_of([record(b"x" * 900, key=b"old%d" % i, timestamp=old)]))
    for i in range(20):
        put(client, topic, b"k", b"%d" % i * 50)
    seal(client, topic)

    until(lambda: list_offset(client, topic, EARLIEST).offset >= 4)
    # From the first that is not old: the log may start there a moment later.
    until(lambda: len(of_keys(read_all(client, topic, 5))) == 1)


def test_producing_goes_on_meanwhile_and_nothing_is_lost(client: RawClient) -> None:
    topic = create_topic(client, configs=COMPACT)
    expected: dict[bytes | None, bytes | None] = {}
    for i in range(300):
        key, value = b"k%d" % (i % 13), b"%d" % i * 10
        expected[key] = value
        put(client, topic, key, value)

    until(lambda: len(read_all(client, topic)) < 100)

    assert table(read_all(client, topic)) == expected


def test_what_was_compacted_is_found_after_a_restart(tmp_path: Path) -> None:
    with broker(data=tmp_path, config=BUSY) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs=COMPACT)
        for i in range(40):
            put(client, topic, b"k%d" % (i % 3), b"%d" % i * 20)
        seal(client, topic)
        until(lambda: len(of_keys(read_all(client, topic))) == 3)
        before = read_all(client, topic)

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        assert read_all(client, topic) == before
        assert put(client, topic, b"k0", b"later") == before[-1].offset + 1


def test_topics_that_are_deleted_while_they_are_compacted_hurt_nobody(
    running: BrokerThread, client: RawClient
) -> None:
    for round_number in range(4):
        topic = create_topic(client, configs=COMPACT)
        for i in range(10 + 5 * round_number):
            put(client, topic, b"k", b"%d" % i * 50)
        seal(client, topic)
        delete_topic(client, topic)

    lasting = create_topic(client)
    append(client, lasting, b"x")
    assert running.broker.partitions.directories[0].health.offline is None


def test_a_log_that_cannot_be_compacted_keeps_no_other_from_it() -> None:
    disk = Disk()
    with on_disk(disk, log_cleaner_backoff_ms="10") as running, RawClient(running.bootstrap) as client:
        never = {**COMPACT, "min.cleanable.dirty.ratio": "1"}
        large, small = create_topic(client, configs=never), create_topic(client, configs=never)
        for i in range(40):
            put(client, large, b"k%d" % i, b"x" * 500)
            put(client, small, b"k", b"x" * 500)
        for topic in (large, small):
            seal(client, topic)
        # Room for what is left of one of them, not of the other.
        disk.capacity = disk.used() + 12_000
        for topic in (large, small):
            set_config(client, TOPIC, topic.name, "min.cleanable.dirty.ratio", "0.01")

        until(lambda: len(of_keys(read_all(client, small))) < 10)

        disk.capacity = None
        assert len(of_keys(read_all(client, large))) == 40


def test_a_chore_that_fails_is_done_again() -> None:
    rounds = count()

    async def run() -> None:
        done = asyncio.Event()

        async def chore() -> None:
            if next(rounds) < 3:
                raise ValueError("a bug")
            done.set()

        task = asyncio.create_task(_repeat(chore, lambda: 0))
        await done.wait()
        task.cancel()

    asyncio.run(run())


def test_as_many_logs_are_compacted_at_once_as_there_are_cleaners(monkeypatch: pytest.MonkeyPatch) -> None:
    together = asyncio.Barrier(2)
    clean, clean_all = cleaner.clean, Maintenance.clean
    are_filled = threading.Event()

    async def clean_together(*args: Any) -> Any:
        await together.wait()
        return await clean(*args)

    async def clean_filled(maintenance: Maintenance) -> None:
        # A round in which only one of the two logs is due has work for one cleaner.
        if are_filled.is_set():
            await clean_all(maintenance)

    monkeypatch.setattr(cleaner, "clean", clean_together)
    monkeypatch.setattr(Maintenance, "clean", clean_filled)
    with broker(config=BUSY) as running, RawClient(running.bootstrap) as client:
        set_config(client, BROKER, NODE, "log.cleaner.threads", "2")
        topics = [create_topic(client, configs=COMPACT) for _ in range(2)]
        for i in range(20):
            for topic in topics:
                put(client, topic, b"k", b"%d" % i * 50)
        for topic in topics:
            seal(client, topic)
        are_filled.set()
        for topic in topics:
            until(lambda topic=topic: len(of_keys(read_all(client, topic))) == 1)  # type: ignore[misc]


def test_compaction_at_a_limited_pace(tmp_path: Path) -> None:
    config = {**BUSY, "log.cleaner.io.max.bytes.per.second": "1000000"}
    with broker(data=tmp_path, config=config) as running, RawClient(running.bootstrap) as client:
        check_compaction(client, Codec.NONE)


def test_without_cleaners_nothing_is_compacted() -> None:
    async def check() -> None:
        config = BrokerConfig({"log.cleaner.threads": "0"})
        node = SimpleNamespace(controller=None, clock_watch=SimpleNamespace(now_ms=lambda: 1))
        maintenance = Maintenance(config, None, None, node, system_world(config), None)  # type: ignore[arg-type]
        await maintenance.clean()

    asyncio.run(check())
