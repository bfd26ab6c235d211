"""Configs that change while the broker runs take effect at once, and last."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.batch import read_header
from penstock.records.codecs import Codec
from penstock.testing import broker
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.configs import (
    BROKER,
    DEFAULT_BROKER,
    DELETE,
    DYNAMIC_DEFAULT_BROKER,
    NODE,
    SET,
    TOPIC,
    alter,
    replace,
    set_config,
    shown,
    value_of,
)
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    append,
    batch_of,
    create_topic,
    delete_topic,
    fetch,
    now_ms,
    produce,
    read_all,
    record,
    stored_batches,
    topic_exists,
)


@pytest.fixture
def client() -> Iterator[RawClient]:
    """A broker of one's own: what is set for brokers would disturb other tests."""
    with broker() as running, RawClient(running.bootstrap) as connected:
        yield connected


def test_max_message_bytes_of_a_topic(client: RawClient, topic: Topic) -> None:
    large = batch_of([b"x" * 2000])
    set_config(client, TOPIC, topic.name, "max.message.bytes", "1000")
    assert produce(client, topic, large).error_code == ErrorCode.MESSAGE_TOO_LARGE

    set_config(client, TOPIC, topic.name, "max.message.bytes", "5000")
    assert produce(client, topic, large).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", [NODE, DEFAULT_BROKER])
def test_message_max_bytes_of_the_broker_holds_for_topics_without_their_own(
    client: RawClient, name: str
) -> None:
    plain, special = create_topic(client), create_topic(client, configs={"max.message.bytes": "5000"})
    large = batch_of([b"x" * 2000])

    set_config(client, BROKER, name, "message.max.bytes", "1000")

    assert produce(client, plain, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(client, special, large).error_code == ErrorCode.NONE
    assert alter(client, BROKER, name, ("message.max.bytes", DELETE, None))[0] == ErrorCode.NONE
    assert produce(client, plain, large).error_code == ErrorCode.NONE


def test_no_broker_has_a_minimum_isr_of_its_own(client: RawClient) -> None:
    """The controller counts with one for all of them (KIP-966)."""
    code, _ = alter(client, BROKER, NODE, ("min.insync.replicas", SET, "2"))
    assert code == ErrorCode.INVALID_CONFIG
    assert alter(client, BROKER, NODE, ("min.insync.replicas", DELETE, None))[0] == ErrorCode.NONE
    set_config(client, BROKER, DEFAULT_BROKER, "min.insync.replicas", "2")
    assert value_of(client, BROKER, NODE, "min.insync.replicas")[0] == "2"


def test_all_brokers_always_have_a_minimum_isr(client: RawClient) -> None:
    """Without, each would count by its own config file, and so would the controller."""
    before = value_of(client, BROKER, NODE, "min.insync.replicas")
    for outcome in (
        alter(client, BROKER, DEFAULT_BROKER, ("min.insync.replicas", DELETE, None)),
        replace(client, BROKER, DEFAULT_BROKER, {"message.max.bytes": "2000"}),
    ):
        assert outcome[0] == ErrorCode.INVALID_CONFIG
        assert outcome[1]
    assert value_of(client, BROKER, NODE, "min.insync.replicas") == before == ("1", DYNAMIC_DEFAULT_BROKER)


@pytest.mark.parametrize("key", ["leader.replication.throttled.rate", "follower.replication.throttled.rate"])
def test_a_throttle_can_be_of_all_brokers(client: RawClient, key: str) -> None:
    set_config(client, BROKER, DEFAULT_BROKER, key, "1000")
    assert value_of(client, BROKER, NODE, key)[0] == "1000"
    set_config(client, BROKER, NODE, key, "2000")
    assert value_of(client, BROKER, NODE, key)[0] == "2000"


def test_compression_type_changes_for_later_batches(client: RawClient, topic: Topic) -> None:
    for codec in ("producer", "zstd", "gzip", "uncompressed"):
        set_config(client, TOPIC, topic.name, "compression.type", codec)
        produce(client, topic, batch_of([b"x" * 100], Codec.LZ4))

    codecs = [read_header(batch).compression for batch in stored_batches(fetch(client, topic, 0))]
    assert codecs == [Codec.LZ4, Codec.ZSTD, Codec.GZIP, Codec.NONE]


def test_a_topic_that_becomes_compacted_wants_keys(client: RawClient, topic: Topic) -> None:
    append(client, topic, b"without a key")
    set_config(client, TOPIC, topic.name, "cleanup.policy", "compact")
    assert produce(client, topic, batch_of([b"x"])).error_code == ErrorCode.INVALID_RECORD

    set_config(client, TOPIC, topic.name, "cleanup.policy", "delete")
    assert produce(client, topic, batch_of([b"x"])).error_code == ErrorCode.NONE


def test_the_timestamp_type_changes_for_later_batches(client: RawClient, topic: Topic) -> None:
    produce(client, topic, batch_of([record(b"0", timestamp=5)]))
    set_config(client, TOPIC, topic.name, "message.timestamp.type", "LogAppendTime")
    before = now_ms()
    produce(client, topic, batch_of([record(b"1", timestamp=5)]))

    first, second = read_all(client, topic)

    assert first.timestamp == 5
    assert second.timestamp >= before


def test_the_limit_of_connections_can_be_changed(client: RawClient) -> None:
    set_config(client, BROKER, DEFAULT_BROKER, "max.connections", "2")
    with client.another() as second, client.another() as third:
        assert not topic_exists(second, "nothing")
        third.send(METADATA, 12, MetadataRequest(topics=None))
        second.close()
        # The third connection has waited for a free slot.
        third.receive()

    set_config(client, BROKER, DEFAULT_BROKER, "max.connections", "10")
    with client.another() as second, client.another() as third:
        assert not topic_exists(third, "nothing")
        assert not topic_exists(second, "nothing")


def test_new_partitions_have_the_configs_of_now(client: RawClient) -> None:
    set_config(client, BROKER, DEFAULT_BROKER, "message.max.bytes", "1000")
    topic = create_topic(client)

    assert produce(client, topic, batch_of([b"x" * 2000])).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_configs_survive_a_restart(tmp_path: Path) -> None:
    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, configs={"retention.ms": "1000"})
        set_config(client, TOPIC, topic.name, "max.message.bytes", "1000")
        set_config(client, BROKER, NODE, "log.cleaner.backoff.ms", "7")
        set_config(client, BROKER, DEFAULT_BROKER, "log.segment.bytes", "2000000")

    with broker(data=tmp_path) as running, RawClient(running.bootstrap) as client:
        configs = shown(client, TOPIC, topic.name)
        assert configs["retention.ms"].value == "1000"
        assert configs["segment.bytes"].value == "2000000"
        assert value_of(client, BROKER, NODE, "log.cleaner.backoff.ms")[0] == "7"
        assert running.broker.stages.config.log_cleaner_backoff_ms == 7
        answer = produce(client, topic, batch_of([b"x" * 2000]))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_topic_made_again_has_none_of_the_old_ones_configs(client: RawClient) -> None:
    topic = create_topic(client, configs={"max.message.bytes": "1000"})
    delete_topic(client, topic)
    again = create_topic(client, topic.name)

    assert shown(client, TOPIC, again.name)["max.message.bytes"].value == "1048588"
    assert produce(client, again, batch_of([b"x" * 2000])).error_code == ErrorCode.NONE


def test_the_unknown_configs_of_brokers_are_limited(client: RawClient) -> None:
    """Brokers accept names that they do not know. They accumulated, and each change takes time for all."""

    def unknown(first: int, number: int, operation: int = SET) -> tuple[int, str | None]:
        names = (f"my.plugin.{n}" for n in range(first, first + number))
        value = None if operation == DELETE else "x"
        return alter(client, BROKER, "", *((name, operation, value) for name in names))

    assert unknown(0, 1000)[0] == ErrorCode.NONE
    code, message = unknown(1000, 1)
    assert code == ErrorCode.POLICY_VIOLATION
    assert message is not None and "1001 names" in message
    assert alter(client, BROKER, NODE, ("long", SET, "x" * 32_000))[0] == ErrorCode.NONE
    long = [(f"long.{n}", SET, "x" * 32_000) for n in range(32)]
    assert alter(client, BROKER, NODE, *long)[0] == ErrorCode.POLICY_VIOLATION
    # Known configs are not counted, and unknown ones can be removed.
    assert alter(client, BROKER, "", ("log.retention.ms", SET, "1000000"))[0] == ErrorCode.NONE
    assert unknown(0, 1, DELETE)[0] == ErrorCode.NONE
    assert unknown(1000, 1)[0] == ErrorCode.NONE
