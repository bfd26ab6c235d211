"""A move from Apache Kafka to Penstock by a link, with producers and consumers that run."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.testing import broker
from tests.broker.links.clusters import DEFAULTS, create, ends_at, lines, link, records
from tests.broker.links.commands import end_topics
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: the cleaner removes what it can, at once
_COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "segment_ms": "100",
    "delete_retention_ms": "0",
}


class Numbers:
    """Produces numbers to a topic from a thread, in transactions, until `stop`; every third is aborted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
        self._producer.init_transactions(60)
        self._topic = topic
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.committed: list[bytes] = []
        self._thread.start()

    def _run(self) -> None:
        nth = 0
        while not self._ends.is_set():
            nth += 1
            values = [b"%d-%d" % (nth, n) for n in range(5)]
            self._producer.begin_transaction()
            for value in values:
                self._producer.produce(self._topic, value, partition=0)
            self._producer.flush(60)
            if nth % 3:
                self._producer.commit_transaction(60)
                self.committed += values
            else:
                self._producer.abort_transaction(60)

    def stop(self) -> list[bytes]:
        self._ends.set()
        self._thread.join()
        return self.committed


def consumed(bootstrap: str, topic: str, count: int) -> tuple[list[bytes], float]:
    """The next records of the group of a topic, committed, and when the first one came."""
    settings = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": "read_committed", **settings})
    consumer.subscribe([topic])
    found: list[bytes] = []
    first = 0.0
    try:
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None and not message.error()
            first = first or time.monotonic()
            found.append(message.value() or b"")
        consumer.commit(asynchronous=False)
        return found, first
    finally:
        consumer.close()


def test_an_application_moves_from_apache_kafka(real_kafka: str, tmp_path: Path) -> None:
    """Nothing is lost, nothing comes twice, the group goes on at its offset, and compaction has gaps."""
    names = [f"{name}-{tmp_path.name}" for name in ("pairs", "compacted", "codecs")]
    pairs, compacted, codecs = names
    create(real_kafka, pairs, retention_ms="-1")
    create(real_kafka, compacted, 1, 1, **_COMPACTED)
    create(real_kafka, codecs)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": real_kafka, "compression.type": codec})
        for n in range(200):
            producer.produce(codecs, b"%d" % n * 30, b"%d" % n, headers={"n": b"%d" % n})
        assert producer.flush(60) == 0
    producer = Producer({"bootstrap.servers": real_kafka})
    for n in range(300):
        producer.produce(compacted, b"%d" % n, b"k%d" % (n % 7))
        if n % 50 == 49:
            producer.flush(60)
    live = Numbers(real_kafka, pairs)
    with broker(config=DEFAULTS) as destination:
        new = destination.bootstrap
        link(new, real_kafka, topics=f"*{tmp_path.name}", groups=f"*{tmp_path.name}")
        ends_at(new, codecs, 1000)
        assert records(new, codecs) == records(real_kafka, codecs)
        ends_at(new, compacted, 300)
        assert {each[2]: each[3] for each in records(new, compacted)} == {
            b"k%d" % (n % 7): b"%d" % n for n in range(293, 300)
        }
        eventually(lambda: len(live.committed) > 50)
        read, _ = consumed(real_kafka, pairs, 30)
        written = live.stop()
        with lines(new) as line:
            ended = end_topics(line, "west", None, complete=True, wait_s=60)
        assert [each.missed for each in ended] == [0, 0, 0]
        began = time.monotonic()
        more, first = consumed(new, pairs, len(written) - len(read))
        assert read + more == written
        print(f"the first record came {first - began:.2f} s after the start of the consumer")
        writer = Producer({"bootstrap.servers": new, "transactional.id": pairs})
        writer.init_transactions(60)
        writer.begin_transaction()
        writer.produce(pairs, b"new", partition=0)
        writer.commit_transaction(60)
        assert consumed(new, pairs, 1)[0] == [b"new"]
        assert records(real_kafka, pairs) == records(new, pairs)[:-1]
