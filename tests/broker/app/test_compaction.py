"""Compaction as the running broker does it, in processes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.codecs import Codec
from penstock.records.record import Record
from penstock.storage.cleaner import CHECKPOINT_FILE
from penstock.testing import BrokerThread, broker
from tests.broker.app.compacted_topics import BUSY, COMPACT, of_keys, put, seal
from tests.broker.configs import TOPIC, set_config
from tests.broker.events import Events
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


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with broker(data=tmp_path, config=BUSY) as started:
        yield started


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as connected:
        yield connected


def table(records: list[Record]) -> dict[bytes | None, bytes | None]:
    return {r.key: r.value for r in records}


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


def test_compacted_records_are_found_after_a_restart(tmp_path: Path) -> None:
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


def test_with_a_damaged_checkpoint_a_log_is_compacted_from_its_start(tmp_path: Path, events: Events) -> None:
    with broker(data=tmp_path, config=BUSY) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs=COMPACT)
        for i in range(20):
            put(client, topic, b"k%d" % (i % 3), b"%d" % i * 20)
        seal(client, topic)
        until(lambda: len(of_keys(read_all(client, topic))) == 3)
        path = tmp_path / "topics" / topic.name / "partition-0" / CHECKPOINT_FILE
        until(lambda: path.exists())
    path.write_bytes(path.read_bytes().replace(b"1\n1\n", b"1\n1\n9"))
    with broker(data=tmp_path, config=BUSY) as running, RawClient(running.bootstrap) as client:
        put(client, topic, b"k0", b"later")
        seal(client, topic)
        until(lambda: bool(events.of("checkpoint_damaged")) and len(of_keys(read_all(client, topic))) == 3)
        assert table(of_keys(read_all(client, topic)))[b"k0"] == b"later"
    ((level, fields),) = events.of("checkpoint_damaged")
    assert (level, fields["path"]) == ("warning", str(path))


def test_topics_that_are_deleted_during_a_compaction_cause_no_error(
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
    assert running.broker.stages.storage.partitions.directories[0].health.offline is None


def test_compaction_at_a_limited_pace(tmp_path: Path) -> None:
    config = {**BUSY, "log.cleaner.io.max.bytes.per.second": "1000000"}
    with broker(data=tmp_path, config=config) as running, RawClient(running.bootstrap) as client:
        check_compaction(client, Codec.NONE)
