"""Publishes to topics, at least once: dead letters from executors, alerts from the driver."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.jobs.supervision import Transient
from penstock.telemetry.message import format_timestamp
from penstock.telemetry.pipeline.detectors import Alert
from penstock.telemetry.pipeline.names import ALERTS, DEAD_LETTERS

__all__ = [
    "Record",
    "Topics",
    "TopicsUnreachable",
    "alert_records",
    "dead_letter_records",
]

_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 1.0
#: The columns in a dead letter's record. Not its time: a sample may claim the year 10000, which Python lacks.
_COLUMNS: Final = ["reason", "topic", "partition", "offset", "raw"]
#: librdkafka refuses a record of more than 1,000,000 bytes, key and headers included.
_RAW_BYTES_MAX: Final = 900_000


class TopicsUnreachable(Transient):
    """A record was not taken; the batch that it belongs to is run again."""


class Record(NamedTuple):
    key: str
    value: bytes
    headers: list[tuple[str, bytes]]


class Topics:
    """Topics of one cluster; sent to executors, so it holds addresses only."""

    __slots__ = ("_settings",)

    def __init__(self, bootstrap: str, settings: dict[str, Any] | None = None) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": "2",
            **(settings or {}),
        }

    def create(self) -> None:
        """Create missing topics. That of alerts is compacted, so that it holds the state of each alert."""
        admin = AdminClient(self._settings)
        wanted = [NewTopic(ALERTS, 1, config={"cleanup.policy": "compact"}), NewTopic(DEAD_LETTERS, 1)]
        for made in admin.create_topics(wanted, operation_timeout=_TIMEOUT_S).values():
            try:
                made.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise TopicsUnreachable(error.args[0].str()) from error

    def wait_for(self, topic: str, wait_s: float) -> None:
        """Return when a topic exists, or after this time."""
        admin, deadline_s = AdminClient(self._settings), time.monotonic() + wait_s
        while time.monotonic() < deadline_s:
            with suppress(KafkaException):
                if admin.list_topics(timeout=_LOOK_S).topics.get(topic) is not None:
                    return
            time.sleep(_LOOK_S / 10)

    def send(self, topic: str, records: Iterable[Record]) -> None:
        """Return when all are acknowledged."""
        failures: list[str] = []

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                failures.append(error.str())

        reliable = {"enable.idempotence": "true", "linger.ms": "5", "partitioner": "murmur2_random"}
        producer = Producer({**self._settings, **reliable, "message.timeout.ms": str(int(_TIMEOUT_S * 1000))})
        for record in records:
            while True:
                try:
                    producer.produce(
                        topic, record.value, record.key, headers=record.headers, on_delivery=delivered
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        if producer.flush(_TIMEOUT_S) or failures:
            raise TopicsUnreachable(f"{topic}: {failures[0] if failures else 'no response in time'}")


def alert_records(alerts: Iterable[Alert], batch_id: int) -> list[Record]:
    """An alert's key is its rule and subject; a repetition has the same key and batch."""
    records = []
    for alert in alerts:
        document = alert._asdict()
        document |= {
            "at": format_timestamp(document.pop("at_ms")),
            "since": format_timestamp(document.pop("since_ms")),
        }
        value = json.dumps({**document, "batch_id": batch_id}, sort_keys=True).encode()
        records.append(Record(alert.key, value, [("content-type", b"application/json")]))
    return records


def dead_letter_records(rows: Any) -> Iterable[Record]:
    """Dead letters as they came, from rows of the table; why, and where from, in headers.

    One that is too large for a record comes without its bytes, and a header says where they are.
    """
    for row in rows.select(_COLUMNS).to_pylist():
        source = f"{row['topic']}/{row['partition']}/{row['offset']}"
        headers = [
            ("reason", row["reason"].encode()),
            ("topic", row["topic"].encode()),
            ("partition", str(row["partition"]).encode()),
            ("offset", str(row["offset"]).encode()),
        ]
        raw = row["raw"] or b""
        if len(raw) > _RAW_BYTES_MAX:
            raw = b""
            headers.append(("raw", b"in the table dead_letters"))
        yield Record(source, raw, headers)
