"""The records of dead letters, and their batches."""

from __future__ import annotations

from penstock.records.record import Record
from penstock.shares.dead_letters import Source, chunks, dead_letters, split_at
from penstock.shares.partition import Undeliverable
from penstock.shares.states import DeadLetterCause

SOURCE = Source("workers", "jobs", 3)
DEAD = [Undeliverable(7, 8, 5, DeadLetterCause.LIMIT)]


def test_copies_keep_key_value_and_headers() -> None:
    old = ("__dlq.errors.offset", b"1")
    copy = Record(7, 5, b"k", b"v", (("trace", b"t"), old))
    first, second = dead_letters(SOURCE, DEAD, {7: copy}, now_ms=99)
    assert (first.key, first.value, first.timestamp) == (b"k", b"v", 99)
    assert first.headers[0] == ("trace", b"t")
    assert [value for name, value in first.headers if name == "__dlq.errors.offset"] == [b"7"]
    assert (second.key, second.value) == (None, None)
    assert dict(second.headers)["__dlq.errors.delivery.count"] == b"5"


def test_batches_are_bounded() -> None:
    records = [Record(0, 0, None, b"x" * 200_000) for _ in range(5)]
    assert [[r.offset for r in chunk] for chunk in chunks(records)] == [[0, 1], [0, 1], [0]]
    many = [Record(0, 0, None, b"") for _ in range(1001)]
    assert [len(chunk) for chunk in chunks(many)] == [500, 500, 1]


def test_offsets_are_split() -> None:
    dead = [Undeliverable(0, 4, 1, DeadLetterCause.LIMIT), Undeliverable(7, 9, 2, DeadLetterCause.LIMIT)]
    assert split_at(dead, 9) == (dead, [])
    assert split_at(dead, 5) == (dead[:1], dead[1:])
    before, behind = split_at(dead, 7)
    assert [each[:3] for each in before] == [(0, 4, 1), (7, 7, 2)]
    assert [each[:3] for each in behind] == [(8, 9, 2)]
