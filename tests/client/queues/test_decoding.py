from __future__ import annotations

from penstock.client.queues.decoding import acquired_messages
from penstock.client.queues.message import Acknowledgement, Decoders, QueueMessage, TopicIdPartition
from penstock.client.queues.outcomes import Outcome
from penstock.client.serializers import BYTES
from penstock.records.record import Record, build_batch
from penstock.wire.apis.share_fetch import AcquiredRecords

PLACE = TopicIdPartition(b"o" * 16, 3)


class NoLocks:
    def settle(self, message: QueueMessage, outcome: Outcome) -> Acknowledgement:
        raise AssertionError

    def drop(self, message: QueueMessage) -> None:
        raise AssertionError


def batch(*offsets: int) -> bytes:
    records = [Record(o, 1000 + o, b"k", str(o).encode(), (("h", b"1"),)) for o in offsets]
    return build_batch(records, base_offset=offsets[0])


def acquired(data: bytes, *ranges: tuple[int, int, int]) -> tuple[list[tuple[int, int]], dict[int, Outcome]]:
    found = acquired_messages(
        "orders",
        PLACE,
        data,
        [AcquiredRecords(first_offset=f, last_offset=last, delivery_count=c) for f, last, c in ranges],
        Decoders(BYTES.decode, BYTES.decode),
        NoLocks(),
    )
    return [(m.offset, m.delivery_count) for m in found.messages], found.outcomes


def test_records_that_were_not_acquired_are_left_out() -> None:
    messages, outcomes = acquired(batch(5, 6, 7, 8) + batch(9, 10), (6, 7, 1), (9, 9, 3))
    assert messages == [(6, 1), (7, 1), (9, 3)]
    assert outcomes == {}


def test_a_message_has_the_fields_of_its_record() -> None:
    ranges = [AcquiredRecords(first_offset=5, last_offset=5, delivery_count=2)]
    decoders = Decoders(BYTES.decode, lambda raw: int(raw) * 2)
    (message,) = acquired_messages("orders", PLACE, batch(5), ranges, decoders, NoLocks()).messages
    assert (message.topic, message.partition, message.offset, message.key) == ("orders", 3, 5, b"k")
    assert (message.value, message.raw_value, message.headers) == (10, b"5", [("h", b"1")])
    assert message.timestamp is not None
    assert message.timestamp.timestamp() == 1.005


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    assert acquired(batch(5, 8), (5, 8, 1)) == ([(5, 1), (8, 1)], {6: Outcome.GAP, 7: Outcome.GAP})


def test_a_response_that_ends_too_early_releases_the_rest() -> None:
    data = batch(5, 6) + batch(7, 8)[:-1]
    assert acquired(data, (5, 8, 1)) == ([(5, 1), (6, 1)], {7: Outcome.RELEASE, 8: Outcome.RELEASE})


def test_a_damaged_batch_is_rejected() -> None:
    damaged = bytearray(batch(5, 6))
    damaged[-3] ^= 1
    messages, outcomes = acquired(bytes(damaged) + batch(7), (5, 7, 1))
    assert messages == [(7, 1)]
    assert outcomes == {5: Outcome.REJECT, 6: Outcome.REJECT}
