"""Kafka Streams with `exactly_once_v2`: a word count that is killed once counts every word once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from chaos.cluster import Cluster
from lab.kafka_streams import streams_classpath
from tests.ecosystem.committed import create, read_committed
from tests.ecosystem.conftest import Program

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parent / "java" / "WordCount.java"
LINES = 1500
WORDS = 4
PARTITIONS = 2
VOCABULARY = [f"word{n}" for n in range(40)]


def test_every_word_is_counted_once(
    brokers: Cluster, tmp_path: Path, program: Callable[[str, list[str]], Program]
) -> None:
    bootstrap = brokers.bootstrap
    create(bootstrap, 3, NewTopic("lines", PARTITIONS, 3), NewTopic("counts", PARTITIONS, 3))
    expected = send_lines(bootstrap)
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", streams_classpath(), str(PROGRAM)]
    counting = program("streams", [*command, bootstrap, "lines", "counts", str(tmp_path / "state")])
    counting.start()
    counting.wait_until(lambda: len(read_committed(bootstrap, "counts", PARTITIONS)) > LINES * WORDS // 4)
    counting.kill()
    assert len(read_committed(bootstrap, "counts", PARTITIONS)) < LINES * WORDS
    counting.start()
    counting.wait_until(lambda: len(read_committed(bootstrap, "counts", PARTITIONS)) >= LINES * WORDS)
    found: dict[bytes, list[int]] = {}
    for message in read_committed(bootstrap, "counts", PARTITIONS):
        found.setdefault(message.key(), []).append(int(message.value()))
    assert found == {word.encode(): list(range(1, count + 1)) for word, count in expected.items()}


def send_lines(bootstrap: str) -> Counter[str]:
    rng, words = Random(1), Counter[str]()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for number in range(LINES):
        line = rng.choices(VOCABULARY, k=WORDS)
        words.update(line)
        producer.produce("lines", " ".join(line), partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return words
