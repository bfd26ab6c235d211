"""The structural check of records agrees with reading them, whatever their shape."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import CorruptMessage
from penstock.records.batch import HEADER_SIZE
from penstock.records.record import Record, build_batch, iter_records, open_batch, seal
from penstock.records.structure import Facts, TooManyRecords, check_records, is_plain_record
from penstock.records.varint import decode_varint
from tests.amounts import amount
from tests.records import poison
from tests.records.poison import field, plain, raw_record

NOW_MS = 1_700_000_000_000


def check(batch: bytes, slow_max: int | None = None) -> Facts:
    """Check the records where a broker finds them: within a buffer that has other bytes around them."""
    header, data = open_batch(batch)
    buffer = bytearray(b"\x02" * 7 + data + b"\x02" * 50)
    return check_records(buffer, 7, 7 + len(data), header.record_count, slow_max)


def facts_of(batch: bytes) -> Facts:
    """The same by reading every record; CorruptMessage where a consumer fails or reads wrong offsets."""
    header, _ = open_batch(batch)
    records = list(iter_records(batch))
    if [record.offset for record in records] != list(range(header.record_count)):
        raise CorruptMessage("offset deltas")
    newest = max((record.timestamp for record in records), default=0)
    return Facts(newest - header.base_timestamp, any(record.key is None for record in records))


def records_of(sizes: list[int], step_ms: int = 1, key: bytes | None = None) -> list[Record]:
    return [Record(i, NOW_MS + i * step_ms, key, b"v" * size) for i, size in enumerate(sizes)]


UNCOMPRESSED = {
    name: batch
    for name, batch in poison.poison().items()
    if name.startswith("none: ") and "frame" not in name
}


@pytest.mark.parametrize("name", UNCOMPRESSED)
def test_poison_is_found(name: str) -> None:
    with pytest.raises(CorruptMessage):
        check(UNCOMPRESSED[name])


@pytest.mark.parametrize("name", poison.unusual())
def test_unusual_records_pass(name: str) -> None:
    batch = poison.unusual()[name]
    assert check(batch) == facts_of(batch)


SHAPES = {
    "one size": records_of([20] * 8300),
    "one size, the same time": records_of([20] * 1000, 0),
    "one size, seconds apart": records_of([20] * 1000, 1000),
    "one size, back in time": records_of([100] * 500, -1),
    "one size, keys": records_of([10] * 1000, key=b"key"),
    "one size, one byte of length": records_of([5] * 500),
    "one size, long": records_of([20_000] * 70),
    "two sizes in turn": records_of([10, 11] * 300),
    "runs of sizes": records_of([40] * 100 + [41] * 100 + [300] * 100),
    "all sizes": records_of(list(range(300))),
    "sizes in no order": records_of([100 + i * 7919 % 500 for i in range(3000)]),
    "sizes in no order, keys of one size": records_of([100 + i * 7919 % 500 for i in range(300)], key=b"key"),
    "sizes of keys and values in no order": [
        Record(i, NOW_MS + i, b"k" * (i * 31 % 60), b"v" * (100 + i * 7919 % 500)) for i in range(300)
    ],
    "around two sizes of lengths": records_of([40 + i * 37 % 40 for i in range(400)]),
    "all with headers": [Record(i, NOW_MS, b"k", b"v" * (i * 37 % 50), (("a", b"1"),)) for i in range(400)],
    "tombstones among others": [
        Record(i, NOW_MS, b"k", None if i % 50 == 49 else b"v" * (i * 37 % 50)) for i in range(400)
    ],
    "headers among others": [
        Record(i, NOW_MS, b"k", b"v" * (i * 37 % 50), () if i % 50 else (("a", b"\x00"),)) for i in range(400)
    ],
    "a newer one among others": [
        *records_of([100] * 300),
        Record(300, NOW_MS + 290, None, b"v" * 100),
        Record(301, NOW_MS + 5000, None, b"v" * 100),
        Record(302, NOW_MS + 301, None, b"v" * 100),
    ],
    "headers": [Record(i, NOW_MS, b"k", b"v", (("a", b"1"), ("b", None))) for i in range(100)],
}


@pytest.mark.parametrize("name", SHAPES)
def test_records_of_every_shape_pass(name: str) -> None:
    batch = build_batch(SHAPES[name])
    assert check(batch) == facts_of(batch)


def test_records_of_one_size_are_not_checked_one_by_one() -> None:
    """Their length changes with the width of offset and timestamp deltas only."""
    check(build_batch(SHAPES["one size"]), slow_max=8300 // 50)
    check(build_batch(SHAPES["two sizes in turn"]), slow_max=600 // 6)
    with pytest.raises(TooManyRecords):
        check(build_batch(SHAPES["all with headers"]), slow_max=100)


def positions_of_structure(data: bytes) -> list[int]:
    """Where lengths, counts and deltas are in a record without headers."""
    length, at = decode_varint(data, 0)
    value = data.index(b"v")
    return [*range(value), at + length - 1]


@pytest.mark.parametrize("at", [0, 1, 17, 63, 64, 65, 199, 299])
def test_a_fault_in_any_byte_of_a_run_is_found_or_harmless(at: int) -> None:
    header, data = open_batch(build_batch(records_of([100] * 300)))
    starts, position = [], 0
    while position < len(data):
        starts.append(position)
        length, behind = decode_varint(data, position)
        position = behind + length
    for distance in positions_of_structure(data[starts[at] :]):
        for change in (0x01, 0x02, 0x80, 0xFF):
            changed = bytearray(data)
            changed[starts[at] + distance] ^= change
            agree(seal(header, changed))


def agree(batch: bytes) -> None:
    """What passes can be read, and what cannot be read does not pass."""
    try:
        facts = check(batch)
    except CorruptMessage:
        return
    assert facts == facts_of(batch)


RECORDS = st.lists(
    st.builds(
        lambda delta, key, value, headers: (delta, key, value, headers),
        st.one_of(st.integers(0, 100), st.integers(-(2**40), 2**40)),
        st.none() | st.binary(max_size=4),
        st.none() | st.binary(max_size=70),
        st.lists(st.tuples(st.sampled_from(["", "h"]), st.none() | st.binary(max_size=2)), max_size=2),
    ),
    min_size=1,
    max_size=4,
)


def batches(shapes: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> bytes:
    return build_batch(
        Record(i, NOW_MS + delta, key, value, tuple(headers))
        for i, (delta, key, value, headers) in enumerate(shapes)
    )


@settings(max_examples=amount(50))
@given(RECORDS, st.integers(1, 40))
def test_built_batches_pass(
    shapes: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], repeat: int
) -> None:
    batch = batches(shapes * repeat)
    assert check(batch) == facts_of(batch)


@settings(max_examples=amount(120))
@given(RECORDS, st.integers(1, 20), st.data())
def test_a_mutation_is_refused_or_can_be_read(
    shapes: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    repeat: int,
    data: st.DataObject,
) -> None:
    header, body = open_batch(batches(shapes * repeat))
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        kind = data.draw(st.sampled_from(["flip", "insert", "remove"]))
        if kind == "insert":
            changed[at:at] = data.draw(st.binary(min_size=1, max_size=2))
        elif kind == "remove":
            del changed[at : at + data.draw(st.integers(1, 2))]
        elif at < len(changed):
            changed[at] = data.draw(st.integers(0, 255))
    agree(seal(header, bytes(changed)))


@pytest.mark.parametrize("size", [0, 1, 50, 57, 58, 63, 64, 8000, 8180, 8185, 8192, 100_000])
def test_a_plain_record_is_recognised(size: int) -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"v" * size)])
    assert is_plain_record(memoryview(bytearray(batch)), HEADER_SIZE, len(batch))
    assert check(batch) == Facts(0, True)


@pytest.mark.parametrize("name", UNCOMPRESSED)
def test_poison_is_no_plain_record(name: str) -> None:
    batch = UNCOMPRESSED[name]
    assert not is_plain_record(batch, HEADER_SIZE, len(batch))


def test_every_change_of_a_plain_record_but_in_its_value_is_noticed() -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"v" * 100)])
    value = batch.index(b"v" * 100)
    for at in (*range(HEADER_SIZE, value), len(batch) - 1):
        changed = bytearray(batch)
        changed[at] ^= 1
        assert not is_plain_record(changed, HEADER_SIZE, len(changed))


def test_lengths_below_null_are_refused() -> None:
    """Java takes them for null, other clients do not read them."""
    for batch in (
        plain(raw_record(key=field(None, -2))),
        plain(raw_record(value=field(None, -2))),
        plain(raw_record(headers=b"\x02" + field(b"h") + field(None, -3))),
    ):
        with pytest.raises(CorruptMessage):
            check(batch)


def test_a_deep_batch_of_tiny_records_is_checked_in_columns() -> None:
    """More records than offset deltas of two bytes number."""
    batch = build_batch(Record(i, NOW_MS, None, b"") for i in range(20_000))
    assert check(batch, slow_max=20_000 // 50) == Facts(0, True)
    header, body = open_batch(batch)
    assert header.record_count == 20_000
    changed = bytearray(body)
    changed[-4] ^= 1
    with pytest.raises(CorruptMessage):
        check(seal(header, changed))
