"""A producer of delayed messages, and readers of the delay topic and of its target, each in a thread.

Each message has a value of its own. The reader of the delay topic counts messages that the producer has
written twice: a mover moves both.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.model.delays import DELIVER_AT_HEADER

__all__ = ["DELAY_TOPIC", "DELIVERY_MS", "TARGET", "DelayedMessages"]

DELAY_TOPIC: Final = "later"
TARGET: Final = "due"
_PARTITIONS: Final = 2
_DELAY_S: Final = 5.0
_PACE_S: Final = 0.01
_POLL_S: Final = 0.05
_LOOK_S: Final = 0.2
#: Longer than any run: librdkafka gives up a message by numbering all later ones anew, in the next producer
#: epoch, and brokers cannot know which of these they have already.
DELIVERY_MS: Final = 600_000
_QUIET: Final[dict[str, Any]] = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class DelayedMessages:
    """One idempotent producer, which writes until `stop`, and the content of both topics."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._rng = random.Random(f"{seed}/delays")
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self.acknowledged: set[str] = set()
        #: (partition, offset) in the delay topic -> value
        self.written: dict[tuple[int, int], str] = {}
        #: values in the target
        self.moved: Counter[str] = Counter()
        self._places: set[tuple[int, int]] = set()
        self._fatal: list[str] = []
        self._producer = Producer(
            {
                **_QUIET,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "delivery.timeout.ms": DELIVERY_MS,
                "request.timeout.ms": 5_000,
                "error_cb": self._note_error,
            }
        )
        self._threads = [
            threading.Thread(target=self._write, name="delays", daemon=True),
            threading.Thread(target=self._read, args=(DELAY_TOPIC,), name="delay-reader", daemon=True),
            threading.Thread(target=self._read, args=(TARGET,), name="target-reader", daemon=True),
        ]

    def create_topics(self, timeout_s: float) -> None:
        admin = AdminClient({**_QUIET, "bootstrap.servers": self._bootstrap})
        safe = {"min.insync.replicas": "2"}
        delay = {**safe, "retention.ms": "-1", "penstock.delay.target": TARGET}
        new = [
            NewTopic(TARGET, _PARTITIONS, 3, config=safe),
            NewTopic(DELAY_TOPIC, _PARTITIONS, 3, config=delay),
        ]
        for created in admin.create_topics(new, request_timeout=timeout_s).values():
            created.result(timeout_s)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> list[str]:
        """Send no more messages. Returns the failures of the producer."""
        self._stopped.set()
        self._threads[0].join(timeout_s)
        left = self._producer.flush(timeout_s)
        lost = [f"the producer of delayed messages has heard nothing of {left} messages"] if left else []
        return lost + [f"the producer of delayed messages has failed: {error}" for error in self._fatal]

    def wait(self, timeout_s: float) -> None:
        """Wait until all acknowledged messages are in the target, and a moment longer for second copies."""
        deadline = time.monotonic() + timeout_s
        while self.acknowledged - self.moved.keys() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        time.sleep(_DELAY_S)

    def finish(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _note_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal.append(str(error))
            self._stopped.set()

    def _write(self) -> None:
        for number in itertools.count():
            if self._stopped.wait(_PACE_S):
                return
            value = f"delayed-{number}"
            at_ms = round(1000 * (time.time() + self._rng.uniform(0, _DELAY_S)))
            self._producer.produce(
                DELAY_TOPIC,
                value.encode(),
                partition=number % _PARTITIONS,
                headers=[(DELIVER_AT_HEADER, str(at_ms).encode())],
                on_delivery=self._delivered,
            )
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(message.value().decode())

    def _read(self, topic: str) -> None:
        consumer = Consumer(
            {
                **_QUIET,
                "bootstrap.servers": self._bootstrap,
                "group.id": f"reader-{topic}",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
        while not self._ended.is_set():
            for message in consumer.consume(500, _POLL_S):
                if message.error() is None:
                    self._took(topic, message)
        consumer.close()

    def _took(self, topic: str, message: Message) -> None:
        value, place = message.value().decode(), (int(message.partition()), int(message.offset()))
        if topic == DELAY_TOPIC:
            self.written[place] = value
        elif place not in self._places:
            self._places.add(place)
            self.moved[value] += 1
