"""librdkafka's clients, and the ledger of acknowledged records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from disasters.cluster import wait_until

__all__ = ["PARTITIONS", "VALUE_BYTES", "Client", "Ledger", "Place"]

PARTITIONS: Final = 3
#: bytes of a value; a segment holds some 120 of them
VALUE_BYTES: Final = 200
SEGMENT_BYTES: Final = "32768"
#: so that a segment has several batches, and damage to one leaves the rest
_BATCH_RECORDS: Final = 20
_QUIET: Final[dict[str, Any]] = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1000,
}
_REQUEST_S: Final = 10.0
#: a partition that gives nothing for this long is not waited for
_STALLED_S: Final = 8.0
#: after this a record has failed for its sender
_DELIVERY_S: Final = 20.0


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Ledger:
    """Every acknowledged record and committed offset of one disaster."""

    acknowledged: dict[Place, bytes] = field(default_factory=dict)
    acknowledgements: int = 0
    commits: dict[tuple[str, int], int] = field(default_factory=dict)
    #: errors of records that were not acknowledged, by name
    errors: dict[str, int] = field(default_factory=dict)

    def note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors[error.name()] = self.errors.get(error.name(), 0) + 1
            return
        place = Place(str(message.topic()), int(message.partition()), int(message.offset()))
        self.acknowledgements += 1
        # Of two records at one offset the later one has taken the place of the earlier: that one is lost.
        self.acknowledged.setdefault(place, bytes(message.value()))


class Client:
    """One producer that lives through the disaster, one group that commits, and an admin."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.ledger = Ledger()
        self.producer_failures: list[str] = []
        self._count = 0
        self._producer = self._new_producer()
        self._admin = AdminClient({**_QUIET, "bootstrap.servers": bootstrap})

    def _new_producer(self) -> Producer:
        return Producer(
            {
                **_QUIET,
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": _BATCH_RECORDS,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "delivery.timeout.ms": round(_DELIVERY_S * 1000),
                "request.timeout.ms": 5_000,
            }
        )

    def restart_producer(self) -> None:
        """Goes on with another producer id, as an application that is restarted."""
        self._producer = self._new_producer()

    def create_topic(
        self, topic: str, replicas: list[int], partitions: int, configs: Mapping[str, str]
    ) -> None:
        """Creates a topic whose preferred leader is the first replica, once the brokers allow it."""
        config = {
            "internal.segment.bytes": SEGMENT_BYTES,
            "min.insync.replicas": str(min(2, len(replicas))),
            **configs,
        }
        new = NewTopic(topic, partitions, replica_assignment=[replicas] * partitions, config=config)

        def created() -> bool:
            try:
                self._admin.create_topics([new], request_timeout=_REQUEST_S)[topic].result(_REQUEST_S)
            except KafkaException as refused:
                return bool(refused.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
            except TimeoutError:
                return False
            return True

        if not wait_until(created, 60):
            raise TimeoutError(f"{topic} was not created")

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic], request_timeout=_REQUEST_S)[topic].result(_REQUEST_S)

    def delete_records(self, topic: str, before: int) -> None:
        places = [TopicPartition(topic, number, before) for number in range(PARTITIONS)]
        for future in self._admin.delete_records(places, request_timeout=_REQUEST_S).values():
            future.result(_REQUEST_S)
        ledger = self.ledger.acknowledged
        for place in [p for p in ledger if p.topic == topic and p.offset < before]:
            del ledger[place]
            self.ledger.acknowledgements -= 1

    def elect_preferred(self, topics: Iterable[str]) -> None:
        """Elects the preferred leaders; partitions for which this is impossible keep their leaders."""
        places = [TopicPartition(topic, n) for topic in topics for n in self.layout_of(topic)]
        try:
            self._admin.elect_leaders(ElectionType.PREFERRED, places).result(_REQUEST_S)
        except (KafkaException, TimeoutError):
            return

    def write(self, topic: str, count: int) -> int:
        """Sends records to all partitions in turn; returns how many were acknowledged."""
        before = self.ledger.acknowledgements
        partitions = len(self.layout_of(topic)) or PARTITIONS
        for number in range(count):
            self._send(topic, number % partitions)
        self._pump(lambda: self._producer.flush(_DELIVERY_S + 5))
        return self.ledger.acknowledgements - before

    def _send(self, topic: str, partition: int) -> None:
        value = f"{topic} {self._count} ".encode().ljust(VALUE_BYTES, b".")
        self._count += 1
        try:
            self._producer.produce(topic, value, partition=partition, on_delivery=self.ledger.note)
        except (KafkaException, BufferError) as refused:
            error = refused.args[0]
            name = error.name() if isinstance(error, KafkaError) else "queue full"
            self.ledger.errors[name] = self.ledger.errors.get(name, 0) + 1
        self._pump(lambda: self._producer.poll(0))

    def _pump(self, call: Callable[[], object]) -> None:
        """Lets the producer report; one that has failed for good is replaced by a new one."""
        try:
            call()
        except (KafkaException, SystemError) as failure:
            # The binding raises a fatal error from within the callback of another message.
            self.producer_failures.append(_code(failure.__cause__ or failure))
            self._producer = self._new_producer()

    def commit(self, topic: str) -> None:
        """Commits the end of each partition for a group; noted once it is acknowledged."""
        ends = {p: o + 1 for _, p, o in sorted(k for k in self.ledger.acknowledged if k.topic == topic)}
        offsets = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
        consumer = self._consumer(self.name)
        try:
            if wait_until(lambda: _committed(consumer, offsets), 40):
                self.ledger.commits.update({(topic, p.partition): p.offset for p in offsets})
        finally:
            consumer.close()

    def committed(self) -> dict[tuple[str, int], int]:
        """Returns the group's committed offsets now, for the partitions that had one before."""
        requested = [TopicPartition(topic, partition) for topic, partition in self.ledger.commits]
        if not requested:
            return {}
        consumer = self._consumer(self.name)
        found: dict[tuple[str, int], int] = {}

        def answered() -> bool:
            try:
                answer = consumer.committed(requested, timeout=_REQUEST_S)
            except KafkaException:
                return False
            found.update({(p.topic, p.partition): p.offset for p in answer if p.error is None})
            return len(found) == len(requested)

        wait_until(answered, 25)
        consumer.close()
        return found

    def read(self, topic: str, partitions: int = PARTITIONS) -> dict[Place, bytes]:
        """Reads a topic from its beginning to its end, as far as brokers let a new consumer."""
        consumer = self._consumer(f"{self.name}-reader")
        try:
            return _read(consumer, topic, partitions)
        finally:
            consumer.close()

    def layout_of(self, topic: str) -> dict[int, tuple[int, list[int]]]:
        """Returns the leader and the ISR of each partition; empty where no broker knows the topic."""
        try:
            found = self._admin.list_topics(topic, timeout=_REQUEST_S).topics[topic]
        except KafkaException:
            return {}
        return {p.id: (p.leader, list(p.isrs)) for p in found.partitions.values()}

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                **_QUIET,
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "retry.backoff.ms": 20,
            }
        )


def _code(failure: BaseException) -> str:
    error = failure.args[0] if failure.args else failure
    return f"fatal {error.name()}" if isinstance(error, KafkaError) else str(failure)


def _committed(consumer: Consumer, offsets: list[TopicPartition]) -> bool:
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException:
        return False
    return True


def _read(consumer: Consumer, topic: str, partitions: int) -> dict[Place, bytes]:
    found: dict[Place, bytes] = {}
    ends = {number: _end_of(consumer, TopicPartition(topic, number)) for number in range(partitions)}
    consumer.assign([TopicPartition(topic, number, 0) for number in ends if ends[number]])
    last = time.monotonic()
    while time.monotonic() < last + _STALLED_S and not _at_end(consumer, ends):
        for message in consumer.consume(500, 0.1):
            if message.error() is None:
                place = Place(topic, int(message.partition()), int(message.offset()))
                found[place] = bytes(message.value())
                last = time.monotonic()
    return found


def _end_of(consumer: Consumer, partition: TopicPartition) -> int:
    """Returns a partition's end offset, 0 if no leader responds: requests fail while the leader changes."""
    deadline = time.monotonic() + _STALLED_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=_REQUEST_S)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                return 0


def _at_end(consumer: Consumer, ends: dict[int, int]) -> bool:
    return all(p.offset >= ends[p.partition] for p in consumer.position(consumer.assignment()))
