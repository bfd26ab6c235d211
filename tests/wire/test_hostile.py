"""Bytes cost at most their sender the connection: a value or ProtocolError, soon and in little memory."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ProtocolError
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.metadata import METADATA
from penstock.wire.apis.produce import PRODUCE
from penstock.wire.messages import decode_request_header
from penstock.wire.metadata_records import decode_metadata_record
from penstock.wire.slicing import MAX_ELEMENTS
from penstock.wire.varint import encode_uvarint, read_uvarint
from tests.wire.cases import CASES, Case
from tests.wire.instances import instance

#: The largest counts and lengths that the two encodings can claim, and others that tempt arithmetic.
CLAIMS = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x00",
)


def _try(case: Case, data: bytes) -> None:
    """Decode: whatever is raised besides ProtocolError fails the test."""
    try:
        message = case.decode(data)
    except ProtocolError:
        return
    assert isinstance(message, case.message)


def _small(case: Case, random: Random) -> bytes:
    """A message small enough to spoil at each of its bytes."""
    return min((case.encode(instance(case.message, case.version, random)) for _ in range(8)), key=_near_200)


def _near_200(data: bytes) -> int:
    return abs(len(data) - 200)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_noise(case: Case) -> None:
    random = Random(f"noise {case}")
    for _ in range(60):
        _try(case, random.randbytes(random.randrange(64)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_spoilt_messages(case: Case) -> None:
    random = Random(f"spoilt {case}")
    valid = _small(case, random)
    for _ in range(60):
        spoilt = bytearray(valid or b"\0")
        for _ in range(random.randint(1, 4)):
            spoilt[random.randrange(len(spoilt))] = random.choice(
                (0, 1, 0x7F, 0x80, 0xFF, random.randrange(256))
            )
        _try(case, bytes(spoilt))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_truncated_messages_are_refused(case: Case) -> None:
    valid = _small(case, Random(f"truncated {case}"))
    cuts = range(len(valid)) if len(valid) < 300 else range(0, len(valid), len(valid) // 150)
    for cut in cuts:
        with pytest.raises(ProtocolError):
            case.decode(valid[:cut])


def test_claims_cost_no_memory() -> None:
    """A few bytes that claim billions of elements or bytes are found out before anything is allocated."""
    random = Random("claims")
    frames = []
    for case in CASES:
        valid = _small(case, random)[:400]
        _try(case, valid)
        for position in range(0, len(valid), max(1, len(valid) // 10)):
            claim = random.choice(CLAIMS)
            frames.append((case, valid[:position] + claim + valid[position + len(claim) :]))
    tracemalloc.start()
    try:
        for case, frame in frames:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            _try(case, frame)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 64 * 1024, (case, frame)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [1, 2**20, 2**31 - 1, -2, -(2**31)])
def test_count_beyond_the_frame(count: int) -> None:
    with pytest.raises(ProtocolError):
        METADATA.request_decoder(1)(memoryview(struct.pack(">i", count)), 0)


def test_five_bytes_that_claim_everything() -> None:
    """What aborts kio: a varint count near 2^31 and nothing behind it."""
    with pytest.raises(ProtocolError, match="too many"):
        METADATA.request_decoder(12)(memoryview(b"\xff\xff\xff\xff\x07"), 0)


def test_elements_are_bounded_in_number() -> None:
    """Two bytes on the wire become an object each: an honest count may still be too high."""
    decode = DELETE_GROUPS.request_decoder(0)
    most = decode(memoryview(struct.pack(">i", MAX_ELEMENTS) + b"\0\0" * MAX_ELEMENTS), 0)
    assert most == DeleteGroupsRequest(groups_names=[""] * MAX_ELEMENTS)
    with pytest.raises(ProtocolError, match="too many"):
        decode(memoryview(struct.pack(">i", MAX_ELEMENTS + 1) + b"\0\0" * (MAX_ELEMENTS + 1)), 0)


def test_elements_of_all_arrays_count_together() -> None:
    partitions = struct.pack(">i", 1000) + struct.pack(">ii", 0, -1) * 1000
    topics = 1 + MAX_ELEMENTS // 1001
    data = struct.pack(">hhii", -1, 1, 0, topics) + (b"\0\1t" + partitions) * topics
    with pytest.raises(ProtocolError, match="too many"):
        PRODUCE.request_decoder(7)(memoryview(data), 0)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff\xff\0\1\0\0\0\0\xff\xff\xff\xff", "topic_data: length below zero"),
        (b"\xff\xfe\0\1\0\0\0\0\0\0\0\0", "transactional_id: length below zero"),
        (b"\xff\xff\0\1\0\0\0\0\0\0\0\1\0\1\xff\0\0\0\0", "malformed"),
        (b"\xff\xff\0\1\0\0\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\0\0\0\5abc", "truncated"),
    ],
)
def test_the_error_names_the_problem(data: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        PRODUCE.request_decoder(7)(memoryview(data), 0)


@given(st.binary(max_size=64))
def test_headers_and_records(data: bytes) -> None:
    for decode in (decode_request_header, decode_metadata_record):
        try:
            decode(memoryview(data))
        except ProtocolError:
            continue


@given(st.integers(0, 2**31 - 1), st.binary(max_size=3))
def test_varints(value: int, rest: bytes) -> None:
    encoded = encode_uvarint(value)
    assert read_uvarint(encoded + rest, 0) == (value, len(encoded))
    assert len(encoded) == max(1, -(-value.bit_length() // 7))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x08", b"\xff\xff\xff\xff\xff\x01", b"\x80" * 20])
def test_varints_beyond_31_bits(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="varint"):
        read_uvarint(data, 0)
