"""Producers that never give up, and the account of what they were promised.

Each producer numbers its messages per partition. It is idempotent, waits for all acks and retries for ever:
whatever happens to the broker, in the end every partition must hold each producer's numbers exactly once and
in order, and every message at the very offset that its acknowledgement named.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

__all__ = ["Load", "Reader", "read_all", "wait_until"]

DEADLINE_S: Final = 120.0
#: messages that a producer may have under way: enough for several batches in flight
WINDOW: Final = 300

#: reconnect at once, and never give up on a message
PATIENT: Final = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 0,
    "request.timeout.ms": 5000,
    "socket.timeout.ms": 6000,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "linger.ms": 1,
    "queue.buffering.max.messages": WINDOW,
    "log_level": 0,
}


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.001)


class Load:
    """Several producers at work on all partitions of a topic, from `start` to `stop`."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, producers: int, limit: int = sys.maxsize
    ) -> None:
        """Each producer sends up to `limit` messages."""
        self._topic = topic
        self._limit = limit
        self._partitions = partitions
        self._stopping = threading.Event()
        #: (partition, offset) of every acknowledged message; each producer's thread fills its own
        self._acknowledged: list[dict[tuple[int, int], bytes]] = [{} for _ in range(producers)]
        self.errors: list[str] = []
        self.sent: Counter[tuple[int, int]] = Counter()
        configs = {"bootstrap.servers": bootstrap, **PATIENT}
        self._threads = []
        for number in range(producers):
            # librdkafka has up to five *messages* of an idempotent producer in flight per partition, or one
            # batch: half of the producers test the former.
            sizes = {"batch.num.messages": 20 if number % 2 else 1}
            self._threads.append(threading.Thread(target=self._produce, args=(number, configs | sizes)))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send no more, and return when everything sent is acknowledged."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "a producer is stuck"

    @property
    def acknowledged(self) -> dict[tuple[int, int], bytes]:
        return {where: value for each in self._acknowledged for where, value in each.items()}

    @property
    def count(self) -> int:
        """How many messages have been acknowledged so far."""
        return sum(map(len, self._acknowledged))

    def check(self, stored: dict[tuple[int, int], bytes]) -> None:
        """Nothing lost, nothing twice, nothing out of order, and everything where it was promised to be."""
        assert not self.errors, self.errors[:3]
        lost = self.acknowledged.items() - stored.items()
        assert not lost, f"{len(lost)} acknowledged messages are not where they were said to be: {min(lost)}"
        numbers: dict[tuple[int, int], list[int]] = defaultdict(list)
        for (partition, _), value in sorted(stored.items()):
            producer, number = map(int, value.split(b":"))
            numbers[producer, partition].append(number)
        for key, found in numbers.items():
            assert found == list(range(self.sent[key])), f"producer, partition {key}: {_first_gap(found)}"
        assert len(stored) == self.sent.total()

    def _produce(self, number: int, configs: dict[str, Any]) -> None:
        acknowledged = self._acknowledged[number]

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(str(error))
                return
            where = (message.partition(), message.offset())
            if where in acknowledged:
                self.errors.append(f"two messages at {where}")
            acknowledged[where] = message.value()

        producer = Producer(configs)
        sent = 0
        while sent < self._limit and not self._stopping.is_set() and not self.errors:
            partition = sent % self._partitions
            value = b"%d:%d" % (number, self.sent[number, partition])
            try:
                producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
            except BufferError:
                producer.poll(0.01)
                continue
            self.sent[number, partition] += 1
            sent += 1
            producer.poll(0)
        left = producer.flush(DEADLINE_S / 2)
        if left:
            self.errors.append(f"{left} messages of producer {number} were never answered")


class Reader:
    """A consumer that follows a topic through everything, and remembers all that it was shown."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        settings = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"}
        quick = {
            key: PATIENT[key] for key in ("reconnect.backoff.ms", "reconnect.backoff.max.ms", "log_level")
        }
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **settings, **quick})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, name="reader")
        self.seen: dict[tuple[int, int], bytes] = {}
        self.errors: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        self._consumer.close()

    def check(self, stored: dict[tuple[int, int], bytes]) -> None:
        """What a reader has seen stays, it never saw two messages at one offset, and it gets to the end."""
        wait_until(lambda: len(self.seen) >= len(stored) or bool(self.errors), "the reader to catch up")
        assert not self.errors, self.errors[:3]
        vanished = self.seen.items() - stored.items()
        assert not vanished, f"{len(vanished)} messages were read and are gone: {min(vanished)}"

    def _read(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(1000, timeout=0.05):
                error = message.error()
                if error is None:
                    where = (message.partition(), message.offset())
                    if self.seen.setdefault(where, message.value()) != message.value():
                        self.errors.append(f"two messages at {where}")
                elif error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                    self.errors.append(str(error))


def _first_gap(found: list[int]) -> str:
    for expected, number in enumerate(found):
        if number != expected:
            return f"{number} where {expected} should be"
    return f"{len(found)} messages"


def read_all(bootstrap: str, topic: str, partitions: int) -> dict[tuple[int, int], bytes]:
    """Everything that the topic holds, by (partition, offset)."""
    stored: dict[tuple[int, int], bytes] = {}
    settings = {"group.id": "unused", "enable.auto.commit": False, "check.crcs": True, "log_level": 0}
    with closing(Consumer({"bootstrap.servers": bootstrap, **settings})) as consumer:
        wheres = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        ends = {w.partition: consumer.get_watermark_offsets(w, timeout=DEADLINE_S)[1] for w in wheres}
        consumer.assign(wheres)
        wanted = sum(ends.values())
        deadline = time.monotonic() + DEADLINE_S
        while len(stored) < wanted and time.monotonic() < deadline:
            for message in consumer.consume(min(10_000, wanted - len(stored)), timeout=0.2):
                assert message.error() is None, message.error()
                stored[message.partition(), message.offset()] = message.value()
    assert stored.keys() == {(p, offset) for p, end in ends.items() for offset in range(end)}
    return stored
