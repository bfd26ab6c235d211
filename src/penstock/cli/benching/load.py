"""Sends messages at a rate and receives them, in one process, so that one clock measures both ends.

With a rate, latencies count from the time at which a message was due, not from the time at which the
generator could send it: a broker that stops the generator for a second is seen as a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.benching.latency import Latencies

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from penstock.cli.connection import Cluster

__all__ = ["STAMP_BYTES", "Load", "Outcome", "run_load"]

#: each value begins with the time at which it was due, in nanoseconds
STAMP_BYTES: Final = 8
_TURN_S: Final = 0.001
_BATCH: Final = 1000
#: without a rate, so many messages are sent between two looks at the clock
_BURST: Final = 200


@dataclass(frozen=True, slots=True)
class Load:
    """What to send. A `rate` of 0 is as many messages as possible; `keys` of 0 sends none."""

    topic: str
    partitions: int
    rate: float
    size: int
    keys: int
    duration_s: float
    consumers: int
    settle_s: float


@dataclass(slots=True)
class Outcome:
    """What became of the messages."""

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    received: int = 0
    seconds: float = 0.0
    error: str | None = None
    acks: Latencies = field(default_factory=Latencies)
    ends: Latencies = field(default_factory=Latencies)


class _Receiver:
    """A consumer of some partitions in a thread; belongs to that thread until it is joined."""

    def __init__(self, consumer: Consumer, stop: Event) -> None:
        self._consumer = consumer
        self._stop = stop
        self.latencies = Latencies()
        self.received = 0
        self.error: str | None = None
        self._thread = Thread(target=self._run, name="bench-consumer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        add = self.latencies.add
        try:
            while not self._stop.is_set():
                # Wait for one message, then take all that have arrived: a batch would wait to be full.
                messages = self._consumer.consume(1, 0.1)
                messages += self._consumer.consume(_BATCH, 0) if messages else []
                now = time.monotonic_ns()
                for message in messages:
                    error = message.error()
                    if error is None:
                        stamp = int.from_bytes(message.value()[:STAMP_BYTES], "big")
                        add((now - stamp) // 1000)
                        self.received += 1
                    elif not error.retriable() and error.name() != "_PARTITION_EOF":
                        self.error = error.str()
        except KafkaException as error:
            self.error = error.args[0].str()


class _Sender:
    """Sends on the calling thread, and counts the acknowledgements."""

    def __init__(self, producer: Producer, load: Load, outcome: Outcome) -> None:
        self._producer = producer
        self._load = load
        self._outcome = outcome
        # Not compressible: repeated bytes would make compression look better than it is.
        self._body = os.urandom(load.size - STAMP_BYTES)
        self._keys = [f"key-{number}".encode() for number in range(load.keys)]

    def run(self, stop: Event, advance: Callable[[float], None]) -> None:
        load, outcome = self._load, self._outcome
        began = shown = time.monotonic()
        interval_ns = round(1e9 / load.rate) if load.rate else 0
        began_ns = time.monotonic_ns()
        while not stop.is_set() and (now := time.monotonic()) - began < load.duration_s:
            if load.rate:
                due = int((now - began) * load.rate) - outcome.sent
                for number in range(outcome.sent, outcome.sent + due):
                    self._send(began_ns + number * interval_ns)
            else:
                for _ in range(_BURST):
                    self._send(time.monotonic_ns())
            self._producer.poll(_TURN_S if load.rate else 0)
            if now - shown >= 0.1:
                advance(now - shown)
                shown = now
        outcome.seconds = time.monotonic() - began
        deadline = time.monotonic() + load.settle_s
        while self._producer.flush(0.2) and time.monotonic() < deadline:
            pass

    def _send(self, due_ns: int) -> None:
        key = self._keys[self._outcome.sent % len(self._keys)] if self._keys else None

        def done(error: Any, _: Any) -> None:
            if error is not None:
                self._outcome.failed += 1
                self._outcome.error = self._outcome.error or error.str()
                return
            self._outcome.acknowledged += 1
            self._outcome.acks.add((time.monotonic_ns() - due_ns) // 1000)

        value = due_ns.to_bytes(STAMP_BYTES, "big") + self._body
        while True:
            try:
                self._producer.produce(self._load.topic, value=value, key=key, on_delivery=done)
                break
            except BufferError:  # the queue of librdkafka is full
                self._producer.poll(0.01)
        self._outcome.sent += 1


def run_load(
    cluster: Cluster, load: Load, settings: dict[str, Any], stop: Event, advance: Callable[[float], None]
) -> Outcome:
    """Send and receive for the duration, or until `stop` is set; then wait for messages in flight."""
    outcome, ended = Outcome(), Event()
    receivers = [_Receiver(_assigned(cluster, load, index), ended) for index in range(load.consumers)]
    for receiver in receivers:
        receiver.start()
    try:
        _Sender(cluster.producer(settings), load, outcome).run(stop, advance)
        deadline = time.monotonic() + load.settle_s
        while receivers and time.monotonic() < deadline:
            if sum(receiver.received for receiver in receivers) >= outcome.acknowledged:
                break
            if all(receiver.error for receiver in receivers):
                break
            time.sleep(0.01)
    finally:
        ended.set()
        for receiver in receivers:
            receiver.join()
    for receiver in receivers:
        outcome.received += receiver.received
        outcome.ends.merge(receiver.latencies)
        outcome.error = outcome.error or receiver.error
    return outcome


def _assigned(cluster: Cluster, load: Load, index: int) -> Consumer:
    """A consumer of every n-th partition, from its end on. It has no group, and so no rebalance."""
    from confluent_kafka import TopicPartition

    consumer = cluster.consumer({"fetch.wait.max.ms": 100, "fetch.min.bytes": 1})
    mine = range(index, load.partitions, load.consumers)
    starts = []
    for partition in mine:
        place = TopicPartition(load.topic, partition)
        _, end = consumer.get_watermark_offsets(place, timeout=cluster.timeout_s)
        starts.append(TopicPartition(load.topic, partition, end))
    consumer.assign(starts)
    return consumer
