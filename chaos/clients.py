"""librdkafka's producers and consumers, each in a thread of its own, which record all responses."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.history import History, Outcome, Poll, Record, Send

__all__ = ["TOPIC", "Reader", "Writer", "create_topic", "fully_replicated", "read_everything"]

TOPIC: Final = "chaos"
PARTITIONS: Final = 4
#: from one message of a writer to its next
_PACE_S: Final = 0.005
#: settings of a client that needs no TLS and no login
_PLAINTEXT: Final[Mapping[str, str]] = {}
_QUIET: Final[dict[str, Any]] = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
#: After this a message has failed for its sender, though a broker may have it. It is longer than any faults
#: in a row: librdkafka gives up a message by numbering all later ones anew, in the next producer epoch, and
#: brokers cannot know which of these they have already.
_DELIVERY_MS: Final = 60_000
#: errors by which librdkafka says that a message was never sent, or a broker that it refused it for good
_NEVER_WRITTEN: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError.MSG_SIZE_TOO_LARGE})
_POLL_S: Final = 0.05
_LOOK_S: Final = 0.1


class Writer:
    """Sends ever higher values to all partitions in turn, at a steady rate."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        values: itertools.count[int],
        security: Mapping[str, str] = _PLAINTEXT,
        delivery_ms: int = _DELIVERY_MS,
        pace_s: float = _PACE_S,
    ) -> None:
        self.name = name
        self._pace_s = pace_s
        self._history = history
        self._values = values
        self._stopped = threading.Event()
        #: the error after which librdkafka takes no more messages; None if there was none
        self.fatal_error: str | None = None
        self._producer = Producer(
            {
                **_QUIET,
                **security,
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "error_cb": self._note_error,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "delivery.timeout.ms": delivery_ms,
                "request.timeout.ms": 5_000,
            }
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def finish(self, timeout_s: float) -> int:
        """Wait for the last outcome; returns how many are still missing."""
        self._thread.join(timeout_s)
        return int(self._producer.flush(timeout_s))

    def _note_error(self, error: KafkaError) -> None:
        """Record a fatal error with its cause, which later calls do not name."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.fatal_error = self.fatal_error or str(error)
            self._stopped.set()

    def _run(self) -> None:
        for partition in itertools.cycle(range(PARTITIONS)):
            if self._stopped.wait(self._pace_s):
                return
            self._send(partition)
            self._producer.poll(0)

    def _send(self, partition: int) -> None:
        send = Send(self.name, partition, next(self._values))
        self._history.sends.append(send)
        try:
            self._producer.produce(
                TOPIC,
                str(send.value).encode(),
                partition=partition,
                on_delivery=lambda error, message: _conclude(send, error, message),
            )
        except BufferError:
            send.outcome = Outcome.FAILED
        except KafkaException as e:
            # Not sent. Without a fatal error it would be a mistake of this program.
            send.outcome = Outcome.FAILED
            self._note_error(e.args[0])
            if self.fatal_error is None:
                raise


def _conclude(send: Send, error: KafkaError | None, message: Message) -> None:
    if error is None:
        send.outcome, send.offset = Outcome.ACKNOWLEDGED, message.offset()
    else:
        send.outcome = Outcome.FAILED if error.code() in _NEVER_WRITTEN else Outcome.UNKNOWN


class Reader:
    """Polls, as a member of a group where one is named, else all partitions from their beginning."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        group: str | None,
        security: Mapping[str, str] = _PLAINTEXT,
    ) -> None:
        self.name = name
        self._history = history
        self._stopped = threading.Event()
        self._moved = False
        self._consumer = _consumer(name, bootstrap, group or name, security)
        if group:
            self._consumer.subscribe([TOPIC], on_assign=self._move, on_revoke=self._move, on_lost=self._move)
        else:
            self._consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        self._stopped.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopped.is_set():
            records = _records(self._consumer.consume(500, _POLL_S))
            if records:
                self._history.polls.append(Poll(self.name, records, self._moved))
                self._moved = False
        self._consumer.close()

    def _move(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._moved = True


def create_topic(
    bootstrap: str, brokers: int, timeout_s: float, security: Mapping[str, str] = _PLAINTEXT
) -> None:
    """Create the topic once so many brokers are there; TimeoutError if they do not come."""
    admin = AdminClient({**_QUIET, **security, "bootstrap.servers": bootstrap})
    deadline = time.monotonic() + timeout_s
    while len(admin.list_topics(timeout=timeout_s).brokers) < brokers:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all {brokers} brokers came up within {timeout_s:g} s")
        time.sleep(_LOOK_S)
    topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic], request_timeout=timeout_s)[TOPIC].result(timeout_s)


def fully_replicated(bootstrap: str, timeout_s: float, security: Mapping[str, str] = _PLAINTEXT) -> bool:
    """Whether every partition comes to have a leader and all its replicas in sync within that time."""
    admin = AdminClient({**_QUIET, **security, "bootstrap.servers": bootstrap})
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        partitions = admin.list_topics(TOPIC, timeout=timeout_s).topics[TOPIC].partitions.values()
        if len(partitions) == PARTITIONS and all(p.leader > 0 and len(p.isrs) == 3 for p in partitions):
            return True
        time.sleep(_LOOK_S)
    return False


def read_everything(
    bootstrap: str, history: History, timeout_s: float, security: Mapping[str, str] = _PLAINTEXT
) -> bool:
    """Read all partitions from beginning to end with a new consumer; whether the end was reached in time."""
    name = "last-reader"
    consumer = _consumer(name, bootstrap, name, security)
    try:
        partitions = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
        ends = {p.partition: consumer.get_watermark_offsets(p, timeout=timeout_s)[1] for p in partitions}
        consumer.assign(partitions)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if records := _records(consumer.consume(500, _POLL_S)):
                history.polls.append(Poll(name, records))
            if all(p.offset >= ends[p.partition] for p in consumer.position(partitions)):
                return True
        return not any(ends.values())
    finally:
        consumer.close()


def _consumer(name: str, bootstrap: str, group: str, security: Mapping[str, str]) -> Consumer:
    return Consumer(
        {
            **_QUIET,
            **security,
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "session.timeout.ms": 6_000,
            "fetch.wait.max.ms": 100,
            "retry.backoff.ms": 20,
        }
    )


def _records(messages: Sequence[Message]) -> list[Record]:
    return [
        Record(int(m.partition()), int(m.offset()), int(m.value())) for m in messages if m.error() is None
    ]
