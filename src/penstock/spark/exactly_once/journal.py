"""The topic of decisions: reading the last decision of a query, and writing one.

A decision is written in a transaction of the driver, whose transactional id fences earlier drivers of the
query: a driver that was replaced cannot decide any more. Readers wait for the end of transactions that are
open when they begin, so an answer is never older than the question.
"""

from __future__ import annotations

from typing import Final

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.model.murmur2 import murmur2
from penstock.net.peer_errors import PeerGone
from penstock.reading.connection import Attempts, Cluster, Endpoint
from penstock.reading.fetching import RangeReader
from penstock.reading.offsets import EARLIEST, LATEST, list_offsets
from penstock.reading.planning import OffsetRange
from penstock.records.varint import encode_varint
from penstock.spark.errors import ReadingError
from penstock.spark.exactly_once.coordinators import Coordinators
from penstock.spark.exactly_once.decisions import Decision, Prepared, decode_decision, encode_decision
from penstock.spark.exactly_once.producing import Producer, TransactionalProducer
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.routing import Reaction, reaction_to

__all__ = ["Journal", "forget_positions"]

_COLUMNS: Final = frozenset({"key", "value"})
_PARTITIONS: Final = 8
#: Batch writes leave a key each: a reader with more of them begins again at the start of the topic.
_KEYS_MAX: Final = 100_000
#: small segments, so that compaction keeps the topic small: the last one is never compacted
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
#: a decision and its batch have to fit in max.message.bytes, whose default this is
_RECORD_BYTES_MAX: Final = (1 << 20) - 1024


class _Position:
    """How far one partition was read, and what the last value of each key is."""

    __slots__ = ("next_offset", "values")

    def __init__(self) -> None:
        self.next_offset = 0
        self.values: dict[bytes, bytes | None] = {}


#: By cluster and partition: a worker reads only what was written since its last task.
_positions: Final[dict[tuple[Endpoint, TopicPartition], _Position]] = {}


def forget_positions() -> None:
    """The next read of a decision begins at the start of its partition."""
    _positions.clear()


class Journal:
    """The decisions of all queries of a topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic

    def last(self, query: str) -> Decision | None:
        """The last decision of a query that was committed when this was called; None if there is none."""
        if not self._partitions():
            return None
        key = query.encode()
        values = self._read(self._partition_of(key)).values
        return decode_decision(query, values[key]) if key in values else None

    def all(self) -> list[Decision]:
        """The last decision of every query that is not closed."""
        found = []
        for partition in range(self._partitions()):
            for key, value in self._read(TopicPartition(self._topic, partition)).values.items():
                if value is not None:
                    found.append(decode_decision(key.decode(), value))
        return found

    def write(self, coordinators: Coordinators, driver: Producer, decision: Decision) -> None:
        """Return when the decision is durable."""
        self._write(coordinators, driver, decision.query, encode_decision(decision))

    def close_query(self, coordinators: Coordinators, driver: Producer, query: str) -> None:
        """Nothing of the query is decided or written after this."""
        self._write(coordinators, driver, query, None)

    def create(self) -> None:
        """Create the topic unless it exists."""
        if self._partitions():
            return
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in _CONFIGS.items()]
        topic = CreatableTopic(
            name=self._topic,
            num_partitions=_PARTITIONS,
            replication_factor=-1,
            assignments=[],
            configs=configs,
        )
        attempts = Attempts(self._cluster.endpoint.total_timeout_s)
        while not self._partitions():
            try:
                request = CreateTopicsRequest(topics=[topic])
                answer = self._cluster.call(self._cluster.view.next_node(), CREATE_TOPICS, request).topics[0]
                code = ErrorCode(answer.error_code)
                if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise ApiError(code, f"creating {self._topic}: {answer.error_message or code.name}")
            except (PeerGone, ApiError) as e:
                if isinstance(e, ApiError) and reaction_to(e.code) is Reaction.FAIL:
                    raise
                attempts.failed(e)

    def _write(self, coordinators: Coordinators, driver: Producer, query: str, value: bytes | None) -> None:
        key = query.encode()
        record = _record(key, value)
        if len(record) > _RECORD_BYTES_MAX:
            raise ReadingError(
                f"the decision of query {query} has {len(record)} bytes, and {_RECORD_BYTES_MAX} fit in a "
                "record: write with fewer partitions (coalesce)"
            )
        producer = TransactionalProducer(self._cluster, driver)
        try:
            producer.add(*self._partition_of(key), record, 1)
            producer.flush()
        finally:
            producer.close()
        coordinators.commit([Prepared(*driver, rows=1)], is_resumed=False)

    def _partitions(self) -> int:
        count = self._cluster.view.partitions(self._topic)
        if not count:
            self._cluster.refresh([self._topic])
            count = self._cluster.view.partitions(self._topic)
        return count

    def _partition_of(self, key: bytes) -> TopicPartition:
        self.create()
        return TopicPartition(self._topic, murmur2(key) % self._partitions())

    def _read(self, partition: TopicPartition) -> _Position:
        """Everything of a partition that was written when this was called."""
        found = _positions.setdefault((self._cluster.endpoint, partition), _Position())
        end = list_offsets(self._cluster, {partition: LATEST}, committed=False)[partition]
        if end < found.next_offset or len(found.values) > _KEYS_MAX:
            # The topic was deleted and created again, or compaction has removed most of it.
            found.next_offset = 0
            found.values.clear()
        if not found.next_offset:
            found.next_offset = list_offsets(self._cluster, {partition: EARLIEST}, committed=False)[partition]
        wanted = OffsetRange(*partition, found.next_offset, end)
        reader = RangeReader(self._cluster, wanted, committed=True, fail_on_data_loss=False, columns=_COLUMNS)
        for rows in reader.read():
            for key, value in zip(
                rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True
            ):
                found.values[key] = value
        found.next_offset = max(found.next_offset, end)
        return found


def _record(key: bytes, value: bytes | None) -> bytes:
    """One encoded record, the first of its batch."""
    body = b"\x00\x00\x00" + encode_varint(len(key)) + key
    body += b"\x01\x00" if value is None else encode_varint(len(value)) + value + b"\x00"
    return encode_varint(len(body)) + body
