"""Control records: what brokers write into a log for readers to act on rather than to see.

A control batch holds one record; its key says the kind. Transactions end with a marker, COMMIT or ABORT.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import Final, NamedTuple

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.batch import NO_EPOCH
from penstock.records.record import Record, build_batch, iter_records

__all__ = ["ControlType", "EndTransaction", "build_end_transaction", "control_type", "parse_end_transaction"]

_KEY: Final = Struct(">hh")
_END_TRANSACTION: Final = Struct(">hi")
_VERSION: Final = 0
#: A marker is tiny whatever its codec claims.
_MARKER_BYTES_MAX: Final = 4096


class ControlType(IntEnum):
    """Kinds of control records; a kind that is not here is to be skipped."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransaction(NamedTuple):
    """The end of one producer's transaction in one partition."""

    committed: bool
    #: of the transaction coordinator: markers of an older one are refused
    coordinator_epoch: int


def build_end_transaction(
    marker: EndTransaction,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
) -> bytes:
    """The control batch that ends `producer_id`'s transaction."""
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    key = _KEY.pack(_VERSION, kind)
    value = _END_TRANSACTION.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type(key: bytes | None) -> int:
    """The kind that a control record's key names; a `ControlType` where it is a known one."""
    try:
        version, kind = _KEY.unpack_from(key or b"")
    except error as e:
        raise CorruptMessage("a control record's key is too short") from e
    if version < 0:
        raise CorruptMessage(f"a control record's key of version {version}")
    return int(kind)


def parse_end_transaction(batch: Buffer) -> EndTransaction | None:
    """The marker (COMMIT or ABORT) in the control batch `batch`; None for another kind of control batch."""
    record = next(iter_records(batch, _MARKER_BYTES_MAX), None)
    if record is None:
        return None
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    try:
        version, coordinator_epoch = _END_TRANSACTION.unpack_from(record.value or b"")
    except error as e:
        raise CorruptMessage("an end-transaction marker is too short") from e
    if version < 0:
        raise CorruptMessage(f"an end-transaction marker of version {version}")
    return EndTransaction(kind == ControlType.COMMIT, coordinator_epoch)
