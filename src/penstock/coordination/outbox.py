"""The outbox of a shard: records to append, replies to send, and effects to run.

A shard handles one request or timer per turn. The runtime takes the outbox at the end of each turn. It
appends the records first. It sends the replies and runs the effects once these records, and all records
before them, are committed. If the append fails, or the broker loses leadership of the partition, the
runtime discards the effects and answers the pending requests with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.wire.schema import Struct

__all__ = [
    "Effect",
    "EncodedRecord",
    "EndMarker",
    "LogItem",
    "LogRecord",
    "Outbox",
    "Reply",
    "ReplyTo",
    "TransactionalRecords",
    "bytes_of",
    "item_of",
    "response_of",
]

#: The handle of a request that waits for its response. Only the runtime knows its type.
ReplyTo: TypeAlias = object
#: A response, or a function that builds it when it is sent. The function must not read state that may change.
Reply: TypeAlias = Struct | Callable[[], Struct]
#: A record's key and value as bytes; a value of None is a tombstone.
EncodedRecord: TypeAlias = tuple[bytes, bytes | None]


class TransactionalRecords(NamedTuple):
    """Records of a producer's transaction, for a batch of their own."""

    producer_id: int
    producer_epoch: int
    records: Sequence[EncodedRecord]
    #: of the verification of the transaction; only the log knows its type
    guard: object


class EndMarker(NamedTuple):
    """The end of a producer's transaction: a control batch."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


#: An item that is appended as it is: a record, the records of a transaction, or a marker.
LogItem: TypeAlias = EncodedRecord | TransactionalRecords | EndMarker
#: An item, or a function that encodes a record when it is appended. The function must not read state that may
#: change.
LogRecord: TypeAlias = LogItem | Callable[[], EncodedRecord]
#: An action outside the shard, for example "send these transaction markers". A plain value: the coordinator
#: that owns the shard passes the function that carries it out to the runtime.
Effect: TypeAlias = Any


def response_of(reply: Reply) -> Struct:
    return reply if isinstance(reply, Struct) else reply()


def item_of(record: LogRecord) -> LogItem:
    return record if isinstance(record, tuple) else record()


def bytes_of(record: LogRecord) -> EncodedRecord:
    """A record outside of transactions."""
    item = item_of(record)
    assert not isinstance(item, TransactionalRecords | EndMarker), item
    return item


class Outbox:
    """The output of a shard's turn.

    Why functions in place of values: a decision about a group of a thousand members takes one turn of the
    event loop. Building its records and replies in the same turn would delay all other requests.
    """

    __slots__ = ("effects", "is_divisible", "record_bytes_max", "records", "replies")

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.replies: list[tuple[ReplyTo, Reply]] = []
        self.effects: list[Effect] = []
        #: whether the log may have some of the records and not the others, after a crash
        self.is_divisible = False
        #: The size of the largest record that the log takes. A larger one would fail the requests of all
        #: groups of the shard, so a decision that needs it is refused.
        self.record_bytes_max: Callable[[], int] = lambda: 1 << 31

    def __bool__(self) -> bool:
        return bool(self.records or self.replies or self.effects)

    def clear(self) -> None:
        self.records.clear()
        self.replies.clear()
        self.effects.clear()
        self.is_divisible = False
