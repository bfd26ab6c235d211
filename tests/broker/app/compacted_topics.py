"""Topics that are compacted, and their keys."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.records.codecs import Codec
from penstock.records.record import Record
from tests.broker.raw import RawClient
from tests.broker.requests import (
    Topic,
    batch_of,
    produce,
    record,
)

BUSY = {"log.cleaner.backoff.ms": "10", "log.retention.check.interval.ms": "10"}
COMPACT = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1000",
    "min.cleanable.dirty.ratio": "0.01",
}


def put(client: RawClient, topic: Topic, key: bytes, value: bytes | None, codec: Codec = Codec.NONE) -> int:
    answer = produce(client, topic, batch_of([record(value, key=key)], codec))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return answer.base_offset


def seal(client: RawClient, topic: Topic) -> None:
    """Fill the segment being written, so that what was before it can be compacted."""
    for i in range(2):
        put(client, topic, b"filler%d" % i, b"x" * 900)


def of_keys(records: list[Record], prefix: bytes = b"k") -> list[Record]:
    return [r for r in records if r.key is not None and r.key.startswith(prefix)]
