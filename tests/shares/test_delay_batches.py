"""What a read of a delay partition contains, and the batches for its target."""

from __future__ import annotations

import pytest

from penstock.model.errors import CorruptMessage
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.codecs import Codec
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import Record, build_batch, iter_records, open_batch, seal
from penstock.shares.delay_batches import Delayed, batch_for, divided, parse_log, pick
from penstock.shares.delay_log import Plan, Target, build_plan

PLAN = Plan(Target("orders", 0), 7, 3, (1, 5))


def message(offset: int, value: bytes = b"v", due: int | None = None, key: bytes | None = None) -> Record:
    headers = () if due is None else (("penstock-deliver-at", b"%d" % due),)
    return Record(offset, 1, key, value, (("trace", b"t"), *headers))


def transactional(offset: int, producer_id: int) -> bytes:
    return build_batch(
        [message(offset, due=offset)],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
        transactional=True,
    )


def marker(offset: int, producer_id: int, committed: bool) -> bytes:
    return build_end_transaction(
        EndTransaction(committed, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=1,
        base_offset=offset,
    )


def at(offset: int, batch: bytes) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]


def unreadable(offset: int) -> bytes:
    """A batch whose checksum is right and whose records are not."""
    header, data = open_batch(build_batch([message(offset)], base_offset=offset))
    return seal(header, b"\x7f" + data[1:])


def test_messages_and_plans() -> None:
    data = build_batch([message(0, due=9), message(1)]) + at(2, build_plan(PLAN, 1)) + marker(3, 5, True)
    assert parse_log(data, [], 0) == ([(0, 9), (1, 0)], [(2, PLAN)], [], 4)
    assert parse_log(data[:-1], [], 0).end == 3
    assert parse_log(b"", [], 17).end == 17


def test_messages_of_aborted_transactions_are_left_out() -> None:
    """Two transactions of producer 5, the first is aborted. That of producer 6 began before this part."""
    data = b"".join(
        [
            transactional(10, 5),
            transactional(11, 6),
            transactional(12, 8),
            marker(13, 5, False),
            transactional(14, 5),
            marker(15, 6, False),
            marker(16, 5, True),
            marker(17, 8, True),
        ]
    )
    found = parse_log(data, [(5, 10), (6, 2)], 10)
    assert [offset for offset, _ in found.messages] == [12, 14]


def test_a_batch_that_its_producer_built_wrongly_is_skipped() -> None:
    data = unreadable(4) + build_batch([message(5)], base_offset=5)
    assert parse_log(data, [], 4) == ([(5, 0)], [], [4], 6)
    assert set(pick(data, {4, 5})) == {5}


def test_a_damaged_batch_is_an_error() -> None:
    """Another replica has the messages: they must not be skipped."""
    data = bytearray(build_batch([message(0)]))
    data[-1] ^= 1
    with pytest.raises(CorruptMessage, match="checksum of the batch at offset 0"):
        parse_log(bytes(data), [], 0)
    with pytest.raises(CorruptMessage):
        pick(bytes(data), {0})


def test_picked_messages() -> None:
    data = b"".join(
        [
            build_batch([message(0), message(1), message(2)], codec=Codec.ZSTD),
            at(3, build_plan(PLAN, 1)),
            build_batch([message(4)], base_offset=4),
            build_batch([message(5)], base_offset=5),
        ]
    )
    found = pick(data, {1, 3, 4})
    assert [(offset, each.record.offset, each.codec) for offset, each in found.items()] == [
        (1, 1, Codec.ZSTD),
        (4, 4, Codec.NONE),
    ]


def test_batches_are_divided_by_partition_and_size() -> None:
    messages = {
        offset: Delayed(message(offset, b"x" * 1000, key=b"%d" % (offset % 2)), Codec.NONE)
        for offset in range(8)
    }
    limit = HEADER_SIZE + 2 * messages[0].bytes_max
    found = list(divided(messages, lambda record: int(record.key or b""), lambda offset: offset == 3, limit))
    assert found == [(0, (0, 2)), (0, (4, 6)), (1, (1,)), (1, (3,)), (1, (5, 7))]
    for _, offsets in found:
        plan = PLAN._replace(offsets=offsets)
        assert len(batch_for(plan, [messages[offset] for offset in offsets], limit, 9)) <= limit
    alone = list(divided(messages, lambda record: 0, lambda offset: False, 100))
    assert [offsets for _, offsets in alone] == [(offset,) for offset in range(8)]


def test_the_bound_of_a_message_is_one() -> None:
    record = Record(0, 1, b"k" * 300, b"v" * 70_000, tuple(("h" * 200, b"x" * 300) for _ in range(200)))
    bound = Delayed(record, Codec.NONE).bytes_max
    assert len(build_batch([record])) <= HEADER_SIZE + bound


def test_the_batch_of_a_plan() -> None:
    messages = [Delayed(message(1, due=5), Codec.ZSTD), Delayed(message(5), Codec.NONE)]
    batch = batch_for(PLAN, messages, 10_000, 99)
    header = read_header(batch)
    assert (header.producer_id, header.base_sequence, header.compression) == (7, 3, 0)
    assert [(r.offset, r.timestamp, r.headers) for r in iter_records(batch)] == [
        (0, 99, (("trace", b"t"),)),
        (1, 99, (("trace", b"t"),)),
    ]


def test_a_large_message_keeps_the_codec_of_its_producer() -> None:
    large = Delayed(message(1, b"x" * 5000), Codec.ZSTD)
    plan = PLAN._replace(offsets=(1,))
    assert len(batch_for(plan, [large], 1000, 99)) < 1000
    assert len(batch_for(plan, [large], 10_000, 99)) > 5000
