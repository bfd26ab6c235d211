from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from penstock.model.errors import CorruptMessage
from penstock.records.batch import read_header
from penstock.records.control import (
    ControlType,
    EndTransaction,
    build_end_transaction,
    control_type,
    parse_end_transaction,
)
from penstock.records.record import Record, build_batch


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_transaction(committed: bool) -> None:
    marker = EndTransaction(committed, 6)
    batch = build_end_transaction(marker, producer_id=5, producer_epoch=1, timestamp=77, base_offset=12)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, -1)
    assert (header.base_offset, header.last_offset, header.max_timestamp) == (12, 12, 77)
    assert parse_end_transaction(batch) == marker
    (theirs,) = KafkaPythonBatch(batch)
    assert (theirs.commit, theirs.abort, theirs.value) == (committed, not committed, b"\0\0\0\0\0\x06")


def test_other_control_records_end_no_transaction() -> None:
    batch = build_batch([Record(0, 0, b"\0\0\0\x02", b"")], control=True)
    assert parse_end_transaction(batch) is None
    assert control_type(b"\0\0\0\x02") == ControlType.LEADER_CHANGE
    assert control_type(b"\0\0\x01\0") == 256


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x00\x00\x00\x00\x06"),
        (b"\x00\x00\x00", b""),
        (b"\xff\xff\x00\x00", b""),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"),
    ],
)
def test_bad_markers_are_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptMessage):
        parse_end_transaction(build_batch([Record(0, 0, key, value)], control=True))
