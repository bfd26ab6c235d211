"""How far a client's batch is checked at each level, and how much memory a bomb gets."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import ApiError, ErrorCode, InvalidRecord
from penstock.records.batch import CRC_START, crc_matches, read_header
from penstock.records.checksum import crc32c
from penstock.records.codecs import Codec, compress
from penstock.records.record import Record, build_batch, iter_records
from penstock.storage.dump import dump, verify
from penstock.storage.log import AppendOrigin, Log
from penstock.storage.memory import MemoryFiles
from tests.amounts import amount
from tests.records import poison
from tests.records.poison import COMPRESSED, batch_with, field, packed, plain, raw_record
from tests.storage.logs import CLOCK, NOW_MS, PATH, append_checked, open_log, records

POISON = poison.poison()
UNUSUAL = poison.unusual()
MIB = 1 << 20


def code_of(log: Log, batch: bytes) -> int:
    """0 if the batch is stored."""
    end, size = log.end_offset, log.size
    try:
        append_checked(log, memoryview(bytearray(batch)))
    except ApiError as e:
        assert (log.end_offset, log.size) == (end, size)
        return int(e.code)
    return 0


def test_every_poison_batch_is_refused_by_default() -> None:
    log = open_log()
    accepted = [name for name, batch in POISON.items() if not code_of(log, batch)]
    assert not accepted
    codes = {name: code_of(log, batch) for name, batch in POISON.items() if not name.startswith("header: ")}
    assert set(codes.values()) == {ErrorCode.INVALID_RECORD}


def test_every_unusual_batch_is_stored_and_can_be_read() -> None:
    log = open_log()
    expected = []
    for name, batch in UNUSUAL.items():
        expected += [(log.end_offset + record.offset, record.value) for record in iter_records(batch)]
        assert not code_of(log, batch), name
    assert [(record.offset, record.value) for record in records(log)] == expected


FRAMES = (": plain records", ": a frame of ", ": no bytes", ": linked blocks")


def test_the_frame_level_refuses_bytes_that_are_no_frame() -> None:
    log = open_log(penstock_record_validation="frame")
    wrong = {
        name: batch
        for name, batch in POISON.items()
        if any(kind in name for kind in FRAMES)
        # Any bytes may be raw snappy, which has no magic; and without a codec there is no frame.
        and not name.startswith(("none", "snappy"))
    }
    assert len(wrong) >= 10
    assert {name for name, batch in wrong.items() if not code_of(log, batch)} == set()


def test_the_frame_level_leaves_records_alone() -> None:
    log = open_log(penstock_record_validation="frame")
    for codec in Codec:
        assert code_of(log, POISON[f"{codec.label}: random bytes"]) == 0


def test_the_header_level_checks_no_frame() -> None:
    log = open_log(penstock_record_validation="header")
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.ZSTD):
        assert code_of(log, POISON[f"{codec.label}: plain records"]) == 0
    assert code_of(log, POISON["none: zeros"]) == 0
    assert code_of(log, POISON["lz4: linked blocks"]) == ErrorCode.INVALID_RECORD
    for name, batch in POISON.items():
        if name.startswith("header: ") and name != "header: no records, but a count":
            assert code_of(log, batch), name


@pytest.mark.parametrize("codec", Codec)
def test_the_header_gets_the_true_maximum_timestamp(codec: Codec) -> None:
    log = open_log()
    times = [raw_record(i, timestamp_delta=delta) for i, delta in enumerate((0, 70, 3))]
    batch = memoryview(bytearray(packed(codec, *times, base_timestamp=NOW_MS, max_timestamp=NOW_MS + 50)))
    append_checked(log, batch)
    header = read_header(batch)
    assert header.max_timestamp == NOW_MS + 70
    assert crc_matches(batch, header)


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    late = plain(raw_record(timestamp_delta=5), base_timestamp=(1 << 63) - 1, max_timestamp=(1 << 63) - 1)
    assert code_of(log, late) == ErrorCode.INVALID_RECORD


@settings(max_examples=amount(150))
@given(st.sampled_from(list(Codec)), st.sampled_from([1, 3, 40]), st.data())
def test_a_mutated_batch_is_refused_or_can_be_read(codec: Codec, count: int, data: st.DataObject) -> None:
    """Any byte of the header, the compressed frame or the records, under a checksum that is right."""
    sent = [Record(i, NOW_MS + i, b"k" * (i % 3), bytes(i % 5)) for i in range(count)]
    batch = bytearray(build_batch(sent, codec=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(CRC_START, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255) | st.just(batch[at] ^ 1))
    batch[CRC_START - 4 : CRC_START] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")

    log = open_log()
    if code_of(log, bytes(batch)):
        return
    assert [record.offset for record in records(log)] == list(range(log.end_offset))
    assert log.end_offset == read_header(batch).record_count


# -- bombs


def bomb(codec: Codec, size: int) -> bytes:
    """A batch of one valid record whose value is `size` zeros."""
    return packed(codec, raw_record(value=field(bytes(size))))


@pytest.mark.parametrize("level", ["frame", "records"])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_a_frame_that_declares_too_much_is_refused(codec: Codec, level: str) -> None:
    log = open_log(penstock_record_validation=level, penstock_record_decompressed_bytes_max=MIB)
    with pytest.raises(InvalidRecord, match=r"penstock\.record\.decompressed\.bytes\.max"):
        append_checked(log, memoryview(bytearray(bomb(codec, MIB))))
    assert code_of(log, bomb(codec, MIB - 100)) == 0


def hidden_bombs(size: int) -> dict[str, bytes]:
    """Bombs whose frames do not declare their size, or lie about it."""
    body = raw_record(value=field(bytes(size)))
    lying = bytearray(gzip.compress(body))
    lying[-4:] = (100).to_bytes(4, "little")
    return {
        "lz4": batch_with(compress(Codec.LZ4, body), attributes=int(Codec.LZ4)),
        "zstd": batch_with(
            zstandard.ZstdCompressor(write_content_size=False).compress(body), attributes=int(Codec.ZSTD)
        ),
        "gzip": batch_with(bytes(lying), attributes=int(Codec.GZIP)),
        "gzip in two parts": batch_with(gzip.compress(body) + gzip.compress(b""), attributes=int(Codec.GZIP)),
    }


HIDDEN = hidden_bombs(64 * MIB)


@pytest.mark.parametrize("name", HIDDEN)
def test_a_bomb_is_stopped_at_the_limit_without_its_memory(name: str) -> None:
    log = open_log(penstock_record_decompressed_bytes_max=MIB, max_message_bytes=10 * MIB)
    sent = memoryview(bytearray(HIDDEN[name]))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord):
            append_checked(log, sent)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * MIB
    assert log.end_offset == 0


# -- other appends


def test_followers_and_readers_accept_batches_of_an_earlier_leader() -> None:
    """A leader with a lower level may have stored it: only its consumers see damage."""
    leader = open_log(penstock_record_validation="header")
    follower = open_log()
    accepted = 0
    for batch in POISON.values():
        copy = memoryview(bytearray(batch))
        try:
            leader.append(copy, 0)
        except ApiError:
            continue
        follower.append_replicated(bytes(copy))
        accepted += 1
    assert accepted > 100
    assert follower.end_offset == leader.end_offset


def test_dump_and_verify_name_poison_and_get_past_it() -> None:
    files = MemoryFiles(CLOCK)
    log = open_log(files, penstock_record_validation="header")
    stored = sum(not code_of(log, batch) for batch in POISON.values())
    log.close()

    entries = list(dump(files, PATH, records=True))
    assert sum("crc" in entry for entry in entries) == stored
    assert sum("unreadable_records" in entry for entry in entries) > 100
    report = verify(files, PATH)
    assert report.batches == stored
    assert len(report.problems) > 100
    assert all("cannot be read" in problem for problem in report.problems)


def test_batches_of_coordinators_are_not_checked_again() -> None:
    log = open_log()
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")], control=True)
    assert log.append(memoryview(bytearray(batch)), 0, AppendOrigin.COORDINATOR).last_offset == 0


def test_a_bomb_in_every_codec_passes_below_the_limit() -> None:
    log = open_log(max_message_bytes=10 * MIB)
    for codec in COMPRESSED:
        assert code_of(log, bomb(codec, 2 * MIB)) == 0
