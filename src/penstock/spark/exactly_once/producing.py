"""A producer inside one two-phase transaction, which it does not end: rows out, acknowledgements in.

librdkafka does not have KIP-939, so record batches are built here and sent over the connections of the
source. Each leader has one request in flight, and each partition one batch: a batch that is sent again
after an error has the sequence number that it had, and nothing overtakes it. The next rows are encoded
meanwhile.

With transaction.version 2 the first batch of a partition adds the partition to the transaction (KIP-890).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock.model.errors import ApiError, ErrorCode
from penstock.net.peer_errors import PeerGone
from penstock.ports import Buffer
from penstock.reading.connection import Attempts, Cluster, Connection
from penstock.records.batch import MAGIC, NO_EPOCH, TRANSACTIONAL_BIT, BatchHeader
from penstock.records.codecs import Codec, compress
from penstock.records.record import seal
from penstock.spark.errors import DeliveryFailed
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.routing import Address, Reaction, reaction_to

__all__ = ["Producer", "TransactionalProducer"]

_ACKS_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
#: one request has batches of several partitions up to this size
_REQUEST_BYTES_MAX: Final = 4 << 20
#: what may wait to be sent; beyond it rows are not taken
_QUEUED_BYTES_MAX: Final = 16 << 20
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_NO_ID: Final = bytes(16)
#: The leader has the batch: the response to an earlier request was lost.
_ACKNOWLEDGED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

_Place = tuple[str, int]


class Producer(NamedTuple):
    """A transactional id and the epoch that InitProducerId has given it."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(slots=True)
class _Queue:
    """The batches of one partition, the first of which is the next to be acknowledged."""

    batches: deque[bytes]
    next_sequence: int = 0
    in_flight: bool = False


class TransactionalProducer:
    """Sends record batches in the order in which they are given; `flush` waits for all of them."""

    def __init__(self, cluster: Cluster, producer: Producer, codec: Codec = Codec.NONE) -> None:
        self._cluster = cluster
        self._producer = producer
        self._codec = codec
        self._queues: dict[_Place, _Queue] = {}
        self._queued_bytes = 0
        #: by leader, the connection and the partitions of the request in flight
        self._sent: dict[Address, tuple[Connection, list[_Place]]] = {}
        self._attempts = Attempts(cluster.endpoint.total_timeout_s)

    @property
    def partitions(self) -> int:
        """The number of partitions of the transaction."""
        return len(self._queues)

    def add(self, topic: str, partition: int, records: Buffer, count: int) -> None:
        """Take encoded records for one batch; waits while too many bytes are queued."""
        queue = self._queues.setdefault((topic, partition), _Queue(deque()))
        batch = self._batch(records, count, queue.next_sequence)
        queue.next_sequence = (queue.next_sequence + count) & _SEQUENCE_MASK
        queue.batches.append(batch)
        self._queued_bytes += len(batch)
        while self._queued_bytes > _QUEUED_BYTES_MAX:
            self._advance()

    def send(self) -> None:
        """Take the responses to the last requests, and send what was added meanwhile."""
        try:
            for _ in range(len(self._sent)):
                self._receive()
            self._send()
        except (PeerGone, ApiError) as e:
            self._recover(e)

    def flush(self) -> None:
        """Return when every batch is acknowledged by all in-sync replicas."""
        while self._queued_bytes:
            self._advance()

    def close(self) -> None:
        """Forget requests in flight: their responses must not reach the next task."""
        for connection, _ in self._sent.values():
            connection.close()
        self._sent.clear()

    def _advance(self) -> None:
        """Send to every leader without a request in flight, then take the oldest response."""
        try:
            self._send()
            self._receive()
        except (PeerGone, ApiError) as e:
            self._recover(e)

    def _receive(self) -> None:
        address = next(iter(self._sent))
        connection, places = self._sent[address]
        response = connection.receive()
        del self._sent[address]
        self._acknowledge(response, places)

    def _send(self) -> None:
        by_leader: dict[Address, list[_Place]] = {}
        for place, queue in self._queues.items():
            if queue.batches and not queue.in_flight:
                by_leader.setdefault(self._cluster.leader(*place), []).append(place)
        for address, places in by_leader.items():
            if address in self._sent:
                continue
            taken = list(_up_to(_REQUEST_BYTES_MAX, places, self._queues))
            connection = self._cluster.connection(address)
            connection.send(PRODUCE, self._request(taken))
            for place in taken:
                self._queues[place].in_flight = True
            self._sent[address] = connection, taken

    def _request(self, places: list[_Place]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for name, partition in places:
            found = topics.get(name)
            if found is None:
                topic_id = self._cluster.view.topic_id(name) or _NO_ID
                found = topics[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
            records = memoryview(self._queues[name, partition].batches[0])
            found.partition_data.append(PartitionProduceData(index=partition, records=records))
        return ProduceRequest(
            transactional_id=self._producer.transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=_TIMEOUT_MS,
            topic_data=list(topics.values()),
        )

    def _acknowledge(self, response: ProduceResponse, places: list[_Place]) -> None:
        """Drop what was acknowledged; the first error that a retry may cure is raised behind that."""
        failed: ApiError | None = None
        for place, answer in self._answers(response, places):
            queue = self._queues[place]
            queue.in_flight = False
            code = ErrorCode(answer.error_code)
            if code in _ACKNOWLEDGED:
                self._queued_bytes -= len(queue.batches.popleft())
                self._attempts.succeeded()
                continue
            text = f"{place[0]}-{place[1]}: {answer.error_message or code.name}"
            if code in _TOO_LARGE:
                size = len(queue.batches[0])
                raise DeliveryFailed(f"{text}: a batch of {size} bytes; raise max.message.bytes of the topic")
            if reaction_to(code) is Reaction.FAIL:
                raise DeliveryFailed(f"{code.name} for {text}")
            failed = ApiError(code, text)
        if failed is not None:
            raise failed

    def _answers(
        self, response: ProduceResponse, places: list[_Place]
    ) -> Iterator[tuple[_Place, PartitionProduceResponse]]:
        names = {self._cluster.view.topic_id(name): name for name, _ in places}
        found = {
            (topic.name or names.get(topic.topic_id, ""), answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for place in places:
            answer = found.get(place)
            if answer is None:
                raise DeliveryFailed(f"the broker has not answered for {place[0]}-{place[1]}")
            yield place, answer

    def _recover(self, error: PeerGone | ApiError) -> None:
        """Wait, and look up the leaders again; raises if a retry is useless, or after too many."""
        if isinstance(error, ApiError) and reaction_to(error.code) is Reaction.FAIL:
            raise error
        self.close()
        for queue in self._queues.values():
            queue.in_flight = False
        self._attempts.failed(error)
        self._cluster.refresh({topic for (topic, _), queue in self._queues.items() if queue.batches})

    def _batch(self, records: Buffer, count: int, sequence: int) -> bytes:
        now_ms = time.time_ns() // 1_000_000
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=self._codec | TRANSACTIONAL_BIT,
            last_offset_delta=count - 1,
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=sequence,
            record_count=count,
        )
        return seal(header, records if self._codec is Codec.NONE else compress(self._codec, bytes(records)))


def _up_to(bytes_max: int, places: list[_Place], queues: dict[_Place, Any]) -> Iterator[_Place]:
    total = 0
    for place in places:
        total += len(queues[place].batches[0])
        if total > bytes_max and total > len(queues[place].batches[0]):
            return
        yield place
