"""What may not enter a log, and with which error it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import pack_into

import pytest
from crc32c import crc32c

from penstock.model.errors import (
    ApiError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from penstock.records.batch import CONTROL_BIT, TIMESTAMP_TYPE_BIT, read_header
from penstock.records.codecs import Codec
from penstock.records.record import Record, build_batch, iter_records, open_batch, seal
from penstock.storage.config import LogConfig
from penstock.storage.log import AppendOrigin, Log, LongWalk
from penstock.storage.validation import rules_of
from tests.storage.logs import NOW_MS, append_checked, batch, idempotent, open_log, records

COMPACT = frozenset({"compact"})


def changed(at: int, layout: str, value: int, *, count: int = 2) -> memoryview:
    """A batch with one field of its header changed, and a checksum that covers it."""
    changed_batch = batch(count)
    pack_into(f">{layout}", changed_batch, at, value)
    pack_into(">I", changed_batch, 17, crc32c(changed_batch[21:]))
    return changed_batch


def refused(log: Log, bad: memoryview, kind: type[ApiError]) -> ApiError:
    with pytest.raises(kind) as raised:
        append_checked(log, bad)
    assert log.end_offset == 0
    assert log.size == 0
    return raised.value


BAD: dict[str, tuple[Callable[[], memoryview], type[ApiError]]] = {
    "nothing": (lambda: memoryview(bytearray()), InvalidRecord),
    "magic 0": (lambda: changed(16, "b", 0), InvalidRecord),
    "magic 1": (lambda: changed(16, "b", 1), InvalidRecord),
    "magic 3": (lambda: changed(16, "b", 3), CorruptMessage),
    "an old message too short for a header": (lambda: changed(16, "b", 1)[:40], InvalidRecord),
    "less than a length": (lambda: batch()[:11], InvalidRecord),
    "no magic": (lambda: batch()[:16], InvalidRecord),
    "half a header": (lambda: batch()[:40], InvalidRecord),
    "a cut batch": (lambda: batch()[:-1], InvalidRecord),
    "a length that reaches too far": (lambda: changed(8, "i", 2**31 - 1), InvalidRecord),
    "a length below any message's": (lambda: changed(8, "i", 13)[:12], CorruptMessage),
    "a length below the header's": (lambda: changed(8, "i", 48), CorruptMessage),
    "a negative length": (lambda: changed(8, "i", -1), CorruptMessage),
    "garbage behind the batch": (lambda: memoryview(bytearray(batch()) + bytes(12)), CorruptMessage),
    "two batches": (lambda: memoryview(bytearray(batch()) + batch()), InvalidRecord),
    "an offset of its own": (lambda: changed(0, "q", 5), InvalidRecord),
    "a delta below its count": (lambda: changed(23, "i", 0), InvalidRecord),
    "a delta above its count": (lambda: changed(23, "i", 7), InvalidRecord),
    "a negative count": (lambda: changed(57, "i", -1), InvalidRecord),
    "no records": (lambda: changed(57, "i", 0), InvalidRecord),
    "a control batch": (lambda: changed(21, "h", CONTROL_BIT), InvalidRecord),
    "a producer without a sequence": (lambda: changed(43, "q", 7), InvalidRecord),
    "append time from a client": (lambda: changed(21, "h", TIMESTAMP_TYPE_BIT), InvalidTimestamp),
    "an unknown codec": (lambda: changed(21, "h", 6), UnsupportedCompressionType),
    "too far in the future": (lambda: batch(timestamp=NOW_MS + 3_600_001), InvalidTimestamp),
}


@pytest.mark.parametrize("piece", [1, 11, 16, 40, -1])
@pytest.mark.parametrize("policy", [frozenset({"delete"}), COMPACT])
def test_a_piece_of_a_batch_behind_a_batch_is_left_out(piece: int, policy: frozenset[str]) -> None:
    log = open_log(cleanup_policy=policy)
    log.append(memoryview(bytearray(batch(2)) + batch()[:piece]), 0)
    log.append(batch(), 0)
    assert log.size == len(batch(2)) + len(batch())
    assert [record.offset for record in records(log)] == [0, 1, 2]


def test_records_that_have_to_be_walked_but_are_none_are_invalid() -> None:
    header, data = open_batch(batch(2))
    garbage = memoryview(bytearray(seal(header, bytes([0xFF]) * len(data))))
    refused(open_log(cleanup_policy=COMPACT), garbage, InvalidRecord)


@pytest.mark.parametrize("name", BAD)
def test_each_defect_of_a_batch_has_its_error_code(name: str) -> None:
    make, kind = BAD[name]
    refused(open_log(), make(), kind)


def test_a_flipped_bit_is_noticed() -> None:
    for position in (21, 40, -1):
        damaged = batch()
        damaged[position] ^= 4
        refused(open_log(), damaged, CorruptMessage)


def test_max_message_bytes_is_the_size_of_a_batch() -> None:
    size = len(batch(5))
    refused(open_log(max_message_bytes=size - 1), batch(5), MessageTooLarge)
    assert open_log(max_message_bytes=size).append(batch(5), 0).last_offset == 4


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    size = len(batch(5))
    refused(open_log(segment_bytes=size - 1), batch(5), RecordListTooLarge)
    assert open_log(segment_bytes=size).append(batch(5), 0).last_offset == 4


def test_a_bad_batch_among_good_ones_has_all_of_them_refused() -> None:
    log = open_log()
    bad = batch()
    bad[-1] ^= 1
    together = memoryview(bytearray(batch(2)) + bytearray(bad) + bytearray(batch()))
    with pytest.raises(CorruptMessage):
        log.append(together, 0, AppendOrigin.COORDINATOR)
    assert log.end_offset == 0
    good = memoryview(bytearray(batch(2)) + bytearray(batch(3)))
    assert log.append(good, 0, AppendOrigin.COORDINATOR)[:2] == (0, 4)
    assert [record.offset for record in records(log)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("codec", Codec)
def test_append_time_is_stamped_and_the_checksum_with_it(codec: Codec) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    sent = batch(3, timestamp=5, codec=codec)
    appended = log.append(sent, 0)
    assert appended.append_time_ms == NOW_MS
    header = read_header(sent)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW_MS
    assert header.crc == crc32c(sent[21:])
    assert [record.timestamp for record in records(log)] == [NOW_MS] * 3


def test_create_time_is_left_alone() -> None:
    log = open_log()
    sent = batch(2, timestamp=NOW_MS - 7)
    crc = read_header(sent).crc
    assert log.append(sent, 0).append_time_ms == -1
    assert read_header(sent).crc == crc
    assert [record.timestamp for record in records(log)] == [NOW_MS - 7, NOW_MS - 6]


def test_append_time_ignores_the_timestamps_of_clients() -> None:
    log = open_log(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=10)
    log.append(batch(timestamp=NOW_MS + 10**9), 0)
    log.append(batch(timestamp=0), 0)
    assert log.end_offset == 2


def test_timestamps_that_are_too_old_or_too_new_are_named_by_record() -> None:
    log = open_log(message_timestamp_before_max_ms=10, message_timestamp_after_max_ms=20)
    stamps = [NOW_MS - 10, NOW_MS - 11, NOW_MS + 20, NOW_MS + 21, -1]
    sent = [Record(i, stamp, b"k", b"v") for i, stamp in enumerate(stamps)]
    error = refused(log, memoryview(bytearray(build_batch(sent))), InvalidTimestamp)
    assert isinstance(error, InvalidTimestamp)
    assert [index for index, _ in error.record_errors] == [1, 3]


def test_without_a_bound_any_past_will_do() -> None:
    log = open_log()
    log.append(batch(timestamp=0), 0)
    log.append(batch(timestamp=-1), 0)
    assert log.end_offset == 2


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_names_the_records_that_have_no_key(codec: Codec) -> None:
    log = open_log(cleanup_policy=COMPACT)
    keys = [b"a", None, b"", None]
    sent = [Record(i, NOW_MS, key, b"v") for i, key in enumerate(keys)]
    error = refused(log, memoryview(bytearray(build_batch(sent, codec=codec))), InvalidRecord)
    assert isinstance(error, InvalidRecord)
    assert [index for index, _ in error.record_errors] == [1, 3]
    assert open_log().append(memoryview(bytearray(build_batch(sent, codec=codec))), 0).last_offset == 3


def test_replicated_batches_are_checked_for_damage_only() -> None:
    log = open_log(max_message_bytes=10, cleanup_policy=COMPACT)
    old = memoryview(bytearray(build_batch([Record(0, 0, None, b"v")])))
    log.append_replicated(old)
    assert list(iter_records(bytes(old))) == records(log)
    damaged = batch()
    damaged[0:8] = (1).to_bytes(8, "big")
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage):
        log.append_replicated(damaged)
    with pytest.raises(CorruptMessage):
        log.append_replicated(bytes(old)[:-1])


def test_an_idempotent_batch_needs_nothing_more() -> None:
    assert open_log().append(idempotent(0), 0).base_offset == 0


# -- records that take long to look at


#: records of irregular size that are checked without a worker
SHORT = 2000


def keyed(count: int, *, last_timestamp: int = NOW_MS) -> memoryview:
    """Records that have to be checked one by one."""
    sent = [Record(i, NOW_MS, b"k", bytes(i % 7), (("h", bytes(i % 3)),)) for i in range(count)]
    sent[-1] = sent[-1]._replace(timestamp=last_timestamp)
    return memoryview(bytearray(build_batch(sent)))


def test_a_long_batch_is_appended_once_its_records_were_checked() -> None:
    log = open_log(cleanup_policy=COMPACT)
    assert log.append(keyed(SHORT), 0).last_offset == SHORT - 1
    with pytest.raises(LongWalk) as walk:
        log.append(keyed(SHORT + 1), 0)
    walk.value.check()
    assert log.append(keyed(SHORT + 1), 0, checked_by=walk.value.rules).base_offset == SHORT


def test_a_check_by_rules_of_before_does_not_count() -> None:
    log = open_log(cleanup_policy=COMPACT)
    with pytest.raises(LongWalk) as walk:
        log.append(keyed(SHORT + 1), 0)
    log.reconfigure(replace(log.config, message_timestamp_before_max_ms=1000))
    with pytest.raises(LongWalk):
        log.append(keyed(SHORT + 1), 0, checked_by=walk.value.rules)


def test_logs_share_the_rules_of_configs_that_are_the_same_and_of_no_others() -> None:
    rules = rules_of(LogConfig(max_message_bytes=1000))
    assert rules_of(LogConfig(max_message_bytes=1000)) is rules
    assert rules_of(LogConfig(max_message_bytes=1001)).message_bytes_max == 1001


def test_only_clients_send_batches_that_take_long() -> None:
    log = open_log(cleanup_policy=COMPACT)
    assert log.append(keyed(SHORT + 1), 0, AppendOrigin.COORDINATOR).last_offset == SHORT


def test_to_name_the_records_of_a_long_batch_is_a_long_walk_too() -> None:
    log = open_log(message_timestamp_after_max_ms=1000)
    equal = [Record(i, NOW_MS, b"", None) for i in range(SHORT + 1)]
    assert log.append(memoryview(bytearray(build_batch(equal))), 0).last_offset == SHORT
    equal[-1] = equal[-1]._replace(timestamp=NOW_MS + 1001)
    with pytest.raises(LongWalk) as walk:
        log.append(memoryview(bytearray(build_batch(equal))), 0)
    with pytest.raises(InvalidTimestamp) as raised:
        walk.value.check()
    assert [index for index, _ in raised.value.record_errors] == [SHORT]


def test_no_more_than_a_thousand_records_are_named() -> None:
    sent = [Record(i, NOW_MS + 5000, None, None) for i in range(1500)]
    bad = memoryview(bytearray(build_batch(sent)))
    for log, kind in (
        (open_log(cleanup_policy=COMPACT), InvalidRecord),
        (open_log(message_timestamp_after_max_ms=1000), InvalidTimestamp),
    ):
        error = refused(log, bad, kind)
        assert isinstance(error, InvalidRecord | InvalidTimestamp)
        assert [index for index, _ in error.record_errors] == list(range(1000))


def replicated(epoch: int, offset: int = 0) -> bytearray:
    """A batch of one record as a leader in `epoch` has it."""
    data = bytearray(batch())
    data[0:8], data[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big")
    return data


def test_batches_newer_than_the_epoch_of_the_fetch_are_not_taken() -> None:
    """KAFKA-18723."""
    batches = replicated(4, 0) + replicated(5, 1) + replicated(6, 2) + replicated(5, 3)
    size = len(batches) // 4
    log = open_log()
    assert log.append_replicated(memoryview(batches), 5) == 2 * size
    assert log.end_offset == 2
    assert log.append_replicated(memoryview(batches)[2 * size :], 6) == 2 * size
    assert log.end_offset == 4


def test_a_batch_cut_short_or_without_a_length_ends_the_append() -> None:
    first, second = replicated(1, 0), replicated(1, 1)
    no_length = bytes(second[:8]) + (-12).to_bytes(4, "big", signed=True) + bytes(second[12:])
    for rest in (second[:-1], second[:20], no_length):
        log = open_log()
        assert log.append_replicated(memoryview(first + rest), 5) == len(first)
        assert log.append_replicated(memoryview(rest), 5) == 0
        assert log.end_offset == 1


def test_damage_among_replicated_batches_is_found() -> None:
    damaged = replicated(1, 1)
    damaged[-1] ^= 1
    log = open_log()
    with pytest.raises(CorruptMessage):
        log.append_replicated(memoryview(replicated(1, 0) + damaged), 5)
    assert log.end_offset == 0
