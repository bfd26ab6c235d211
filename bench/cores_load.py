"""Load for several brokers: Produce requests of one batch on a connection for each partition.

Each partition has its own connection, as if it had its own producer. So the requests are the same however
many brokers there are. The leaders of the partitions are looked up once.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, NewTopic

from bench.interpreters import batch_of_records
from bench.requests import _first_answer, produce_frame

__all__ = [
    "FULL_BATCHES",
    "LOADS",
    "PARTITIONS",
    "SMALL_BATCHES",
    "Load",
    "Stream",
    "at_rate",
    "saturated",
    "streams",
]

PARTITIONS = 16
MESSAGE_BYTES = 1000
_CALL_S = 30.0
_WINDOW = 32
"""Requests without an answer on a connection that is to be saturated."""
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Load:
    """A fixed load: so many messages a second, in batches of one size."""

    name: str
    messages_per_batch: int
    messages_per_second: int

    @property
    def requests_per_second(self) -> float:
        return self.messages_per_second / self.messages_per_batch

    @property
    def batch_bytes(self) -> int:
        return self.messages_per_batch * MESSAGE_BYTES


FULL_BATCHES = Load("full", 1000, 600_000)
"""Batches of 1 MB, which librdkafka sends under load (`batch.size`): half a core of one broker."""
SMALL_BATCHES = Load("small", 16, 32_000)
"""Batches of 16 KB, Java's `batch.size`: a wake-up of a broker for each."""
LOADS = (FULL_BATCHES, SMALL_BATCHES)


@dataclass(slots=True)
class Stream:
    """A connection to the leader of one partition."""

    connection: socket.socket
    frame: bytes
    answer_bytes: int
    sent: int = 0
    received_bytes: int = 0

    @property
    def answered(self) -> int:
        return self.received_bytes // self.answer_bytes

    def send(self) -> None:
        self.connection.sendall(self.frame)
        self.sent += 1

    def receive(self, flags: int = 0) -> None:
        try:
            data = self.connection.recv(_READ_BYTES, flags)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError("the broker closed the connection")
        self.received_bytes += len(data)


@contextmanager
def streams(bootstrap: str, brokers: int, load: Load) -> Iterator[list[Stream]]:
    """A topic whose partitions are spread over all brokers, and a connection for each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topic = f"load-{load.name}"
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=_CALL_S)[topic].result(_CALL_S)
    try:
        addresses = _leaders(admin, topic, brokers)
        batch = batch_of_records(load.messages_per_batch, b"x" * MESSAGE_BYTES)
        with ExitStack() as opened:
            made = []
            for partition, address in enumerate(addresses):
                connection = opened.enter_context(socket.create_connection(address, _CALL_S))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                frame = produce_frame(topic, partition, batch)
                made.append(Stream(connection, frame, _first_answer(connection, topic, frame)))
            yield made
    finally:
        admin.delete_topics([topic])[topic].result(_CALL_S)


def _leaders(admin: AdminClient, topic: str, brokers: int) -> list[tuple[str, int]]:
    """The address of each partition's leader, once all have one and every broker leads some."""
    deadline = time.monotonic() + _CALL_S
    while True:
        metadata = admin.list_topics(topic, timeout=_CALL_S)
        # Just after its creation Kafka may answer for some partitions only.
        leaders = [each.leader for _, each in sorted(metadata.topics[topic].partitions.items())]
        if (
            len(leaders) == PARTITIONS
            and len(set(leaders)) == min(brokers, PARTITIONS)
            and all(each in metadata.brokers for each in leaders)
        ):
            found = [metadata.brokers[each] for each in leaders]
            return [(broker.host, broker.port) for broker in found]
        if time.monotonic() > deadline:
            raise RuntimeError(f"{PARTITIONS} partitions have {len(set(leaders))} leaders, not {brokers}")
        time.sleep(0.1)


def at_rate(opened: Sequence[Stream], rate: float, seconds: float) -> float:
    """Send requests evenly spaced, each on the next connection; seconds until the last answer."""
    began = time.perf_counter()
    total = int(rate * seconds)
    for number in range(total):
        stream = opened[number % len(opened)]
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        stream.send()
        stream.receive(socket.MSG_DONTWAIT)
    for stream in opened:
        while stream.answered < stream.sent:
            stream.receive()
    return time.perf_counter() - began


def saturated(opened: Sequence[Stream], seconds: float, warm_s: float) -> float:
    """Answers a second with as many requests in flight as the brokers can use, after a time to warm up."""
    with selectors.DefaultSelector() as selector:
        for stream in opened:
            selector.register(stream.connection, selectors.EVENT_READ, stream)
            for _ in range(_WINDOW):
                stream.send()
        _turn_over(selector, time.perf_counter() + warm_s)
        began, before = time.perf_counter(), sum(stream.answered for stream in opened)
        _turn_over(selector, began + seconds)
        answered = sum(stream.answered for stream in opened) - before
        return answered / (time.perf_counter() - began)


def _turn_over(selector: selectors.BaseSelector, until: float) -> None:
    """Send a request for each answer."""
    while (left := until - time.perf_counter()) > 0:
        for key, _ in selector.select(left):
            stream: Stream = key.data
            stream.receive()
            while stream.sent - stream.answered < _WINDOW:
                stream.send()
