"""A compacted topic is a table: whatever happens to the broker meanwhile, its last values stay."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lab.penstock import penstock
from lab.server import Server
from tests.interop.load import DEADLINE_S, PATIENT, wait_until

TOPIC = "table"
KEYS = 20
ROUNDS = 4
EACH = 100

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
    "delete.retention.ms": "86400000",
}


def records(server: Server) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of everything that a reader from the beginning sees."""
    where = TopicPartition(TOPIC, 0, 0)
    found: list[tuple[int, bytes, bytes | None]] = []
    settings: dict[str, Any] = {"group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    with closing(Consumer({"bootstrap.servers": server.bootstrap, **settings})) as consumer:
        end = consumer.get_watermark_offsets(where, timeout=DEADLINE_S)[1]
        consumer.assign([where])
        while not found or found[-1][0] < end - 1:
            message = consumer.poll(DEADLINE_S)
            assert message.error() is None, message.error()
            found.append((message.offset(), message.key(), message.value()))
    return found


def test_kills_and_compaction_keep_the_table(tmp_path: Path) -> None:
    server = penstock(tmp_path, {"log.cleaner.backoff.ms": "20", "penstock.flush": "group"})
    server.start()
    try:
        new = NewTopic(TOPIC, 1, config=COMPACTED)
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.create_topics([new])[TOPIC].result(timeout=60)
        table: dict[bytes, bytes | None] = {}
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": server.bootstrap, **PATIENT})
        for round_ in range(ROUNDS):
            for i in range(EACH):
                key = b"key-%d" % (i % KEYS)
                # Every fifth key ends as a tombstone.
                value = None if i % KEYS % 5 == 0 else b"%d %d" % (round_, i)
                producer.produce(TOPIC, value, key, on_delivery=lambda error, _: errors.append(error))
                table[key] = value
            if round_ % 2:
                assert server.process is not None
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
                server.start()
            assert producer.flush(DEADLINE_S) == 0
        assert errors == [None] * (ROUNDS * EACH)
        # The last segment, at most the last round, is never compacted.
        wait_until(lambda: len(records(server)) < (ROUNDS - 1) * EACH, "a compaction")
        left = records(server)
    finally:
        server.stop()
    assert [offset for offset, _, _ in left] == sorted({offset for offset, _, _ in left})
    assert {key: value for _, key, value in left} == table
    assert left[-1][0] == ROUNDS * EACH - 1
