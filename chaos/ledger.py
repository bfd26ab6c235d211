"""The transactional workload of a run: a topic of its own, writers, and readers of committed records."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.checker import anomalies
from chaos.history import History, Outcome, Poll, Record
from chaos.transactional_writers import JavaWriter, LibrdkafkaWriter, TransactionalWriter
from lab.home import lab_root

__all__ = ["Ledger"]

_TOPIC: Final = "chaos-ledger"
_PARTITIONS: Final = 3
_POLL_S: Final = 0.1
_FIRST_JAVA_VALUE: Final = 1_000_000_000


class Ledger:
    """Transactions during a run, and the judgement of their history."""

    def __init__(
        self, bootstrap: str, timeout_s: float, *, java: bool, security: Mapping[str, str] | None = None
    ) -> None:
        """Creates the topic. `java` adds a writer of the Java client, if there is one on this machine.

        `security` has the settings of librdkafka for TLS and SASL.
        """
        self._security = dict(security or {})
        self.history = History()
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._stopped = threading.Event()
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **self._security})
        topic = NewTopic(_TOPIC, _PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic], request_timeout=timeout_s)[_TOPIC].result(timeout_s)
        values = itertools.count()
        place = bootstrap, _TOPIC, _PARTITIONS, self.history
        self._writers: list[TransactionalWriter] = [
            LibrdkafkaWriter(f"ledger-{n}", *place, values, self._security) for n in (1, 2)
        ]
        jars = _jars()
        if java and JavaWriter.is_possible(jars):
            self._writers.append(JavaWriter("ledger-java", *place, jars, _FIRST_JAVA_VALUE))
        self._reader = threading.Thread(target=self._read, name="ledger-reader", daemon=True)

    def start(self) -> None:
        for writer in self._writers:
            writer.start()
        self._reader.start()

    def finish(self) -> list[str]:
        """End the workload, and read everything once more. Returns the failures of liveness."""
        complaints = []
        for writer in self._writers:
            writer.stop()
        for writer in self._writers:
            if not writer.finish(self._timeout_s):
                complaints.append(f"the last transaction of {writer.name} did not end")
        self._stopped.set()
        self._reader.join(self._timeout_s)
        if not self._read_to_the_end():
            complaints.append(f"{_TOPIC}: not all transactions have ended within {self._timeout_s:g} s")
        return complaints

    def anomalies(self) -> dict[str, Sequence[object]]:
        return {f"ledger {name}": cases for name, cases in anomalies(self.history).items()}

    def counts(self) -> dict[str, int]:
        """The transactions by writer and outcome."""
        counts: dict[str, int] = {}
        for sends in self.history.transactions:
            if sends:
                name = f"{_NAMES[sends[0].outcome]} by {sends[0].producer}"
                counts[name] = counts.get(name, 0) + 1
        return counts

    def _read(self) -> None:
        """Read committed records from the beginning, as they appear."""
        name = "ledger-reader"
        consumer = _consumer(self._bootstrap, name, **self._security)
        consumer.assign([TopicPartition(_TOPIC, index, 0) for index in range(_PARTITIONS)])
        while not self._stopped.is_set():
            self._take(name, consumer.consume(500, _POLL_S))
        consumer.close()

    def _read_to_the_end(self) -> bool:
        """Returns false if a transaction stays open: committed records end before the high watermark."""
        name = "ledger-last-reader"
        ends = self._high_watermarks()
        consumer = _consumer(self._bootstrap, name, **{"enable.partition.eof": True}, **self._security)
        consumer.assign([TopicPartition(_TOPIC, index, 0) for index in ends])
        deadline = time.monotonic() + self._timeout_s
        left = set(ends)
        try:
            while left and time.monotonic() < deadline:
                messages = consumer.consume(500, _POLL_S)
                self._take(name, messages)
                for message in messages:
                    error = message.error()
                    is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                    if is_end and message.offset() >= ends[message.partition()]:
                        left.discard(message.partition())
        finally:
            consumer.close()
        return not left

    def _high_watermarks(self) -> dict[int, int]:
        own = {"isolation.level": "read_uncommitted", **self._security}
        consumer = _consumer(self._bootstrap, "ledger-ends", **own)
        try:
            return {
                index: consumer.get_watermark_offsets(TopicPartition(_TOPIC, index), timeout=self._timeout_s)[
                    1
                ]
                for index in range(_PARTITIONS)
            }
        finally:
            consumer.close()

    def _take(self, name: str, messages: Sequence[Message]) -> None:
        records = [
            Record(int(m.partition()), int(m.offset()), int(m.value())) for m in messages if m.error() is None
        ]
        if records:
            self.history.polls.append(Poll(name, records))


_NAMES: Final = {
    Outcome.ACKNOWLEDGED: "committed",
    Outcome.FAILED: "aborted",
    Outcome.UNKNOWN: "unknown",
    Outcome.PENDING: "pending",
}


def _jars() -> Path:
    return lab_root() / "kafka" / "libs"


def _consumer(bootstrap: str, name: str, **configs: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": name,
            "log_level": 0,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            **configs,
        }
    )
