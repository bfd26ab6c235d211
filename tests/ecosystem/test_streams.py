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
LINES = 1600
WORDS = 4
PARTITIONS = 2
VOCABULARY = [f"word{n}" for n in range(40)]


def test_every_word_is_counted_once(
    brokers: Cluster, tmp_path: Path, program: Callable[[str, list[str]], Program]
) -> None:
    bootstrap = brokers.bootstrap
    create(bootstrap, 3, NewTopic("lines", PARTITIONS, 3), NewTopic("counts", PARTITIONS, 3))
    lines = Lines(bootstrap)
    lines.send(LINES // 2)
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", streams_classpath(), str(PROGRAM)]
    counting = program("streams", [*command, bootstrap, "lines", "counts", str(tmp_path / "state")])
    counting.start()
    counting.wait_until(lambda: len(read_committed(bootstrap, "counts", PARTITIONS)) > LINES * WORDS // 4)
    # It is killed with records to process, however fast it is.
    lines.send(LINES // 4)
    counting.kill()
    lines.send(LINES // 4)
    counting.start()
    counting.wait_until(lambda: len(read_committed(bootstrap, "counts", PARTITIONS)) >= LINES * WORDS)
    found: dict[bytes, list[int]] = {}
    for message in read_committed(bootstrap, "counts", PARTITIONS):
        found.setdefault(message.key(), []).append(int(message.value()))
    assert found == {word.encode(): list(range(1, count + 1)) for word, count in lines.words.items()}


class Lines:
    """Sends lines of random words, and counts the words."""

    def __init__(self, bootstrap: str) -> None:
        self.words = Counter[str]()
        self._rng = Random(1)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )

    def send(self, count: int) -> None:
        for number in range(count):
            line = self._rng.choices(VOCABULARY, k=WORDS)
            self.words.update(line)
            self._producer.produce("lines", " ".join(line), partition=number % PARTITIONS)
        assert self._producer.flush(60) == 0
