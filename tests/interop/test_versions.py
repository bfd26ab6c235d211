"""Clients of all ages: the same library set to an older broker's versions, or an old library."""

from __future__ import annotations

import subprocess
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaConnectionError

from tests.interop.conftest import NewTopicNamed
from tests.interop.kcat import needs_kcat

#: the brokers that kafka-python knows, from the first with today's record batches on
AGES = [(0, 11), (1, 0), (1, 1), (2, 0), (2, 1), (2, 3), (2, 5), (2, 8), (3, 3), (3, 9), (4, 0)]


@pytest.mark.parametrize("age", AGES, ids=lambda age: ".".join(map(str, age)))
def test_kafka_python_of_any_age(bootstrap: str, age: tuple[int, int]) -> None:
    topic = f"age-{age[0]}-{age[1]}"
    options = {"bootstrap_servers": bootstrap, "api_version": age}
    with closing(KafkaAdminClient(**options)) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
        assert topic in admin.list_topics()
    # zstd is younger than the oldest of them.
    codec = "gzip" if age < (2, 1) else "zstd"
    with closing(KafkaProducer(**options, compression_type=codec)) as producer:
        sent = [
            producer.send(topic, b"%d" % i, headers=[("h", b"v")], timestamp_ms=1000 + i) for i in range(9)
        ]
        assert [future.get(60).offset for future in sent] == list(range(9))
    where = TopicPartition(topic, 0)
    with closing(KafkaConsumer(**options, group_id=None)) as consumer:
        consumer.assign([where])
        assert consumer.end_offsets([where]) == {where: 9}
        assert consumer.offsets_for_times({where: 1004})[where].offset == 4
        consumer.seek(where, 4)
        records = consumer.poll(60_000)[where]
    assert [r.value for r in records] == [b"%d" % i for i in range(4, 9)]
    assert records[0].headers == [("h", b"v")]


def test_a_producer_from_before_record_batches_is_turned_away(
    bootstrap: str, new_topic: NewTopicNamed
) -> None:
    """KIP-896: Produce below version 3 is advertised for librdkafka's sake, and closes the connection."""
    options = {"bootstrap_servers": bootstrap, "enable_idempotence": False, "retries": 0}
    producer = KafkaProducer(**options, api_version=(0, 10, 2))
    with closing(producer), pytest.raises(KafkaConnectionError):
        producer.send(new_topic(), b"old").get(60)


@pytest.mark.process
@needs_kcat("gzip")
@pytest.mark.parametrize("age", ["0.11.0.0", "1.0.0", "2.0.0"])
def test_librdkafka_without_api_versions(bootstrap: str, new_topic: NewTopicNamed, age: str) -> None:
    topic = new_topic()
    old = ["-X", "api.version.request=false", "-X", f"broker.version.fallback={age}"]
    common = ["kcat", "-b", bootstrap, *old, "-t", topic, "-p", "0"]
    subprocess.run([*common, "-P", "-z", "gzip"], input=b"one\ntwo\n", check=True, timeout=60)
    read = subprocess.run(
        [*common, "-C", "-c", "2", "-q", "-o", "beginning"], capture_output=True, check=True, timeout=60
    )
    assert read.stdout == b"one\ntwo\n"
