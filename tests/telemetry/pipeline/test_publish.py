"""What goes back to topics, as records."""

from __future__ import annotations

from typing import Any

from penstock.telemetry.pipeline.publish import Record, dead_letter_records
from penstock.telemetry.pipeline.shard import dead_letter_rows
from penstock.telemetry.pipeline.validate import judge
from tests.telemetry.pipeline.messages import NOW_MS, messages, value


def letters(*values: bytes | None) -> list[Record]:
    """The dead letters that messages with these values become."""
    rows: Any = dead_letter_rows(judge(messages(values), NOW_MS), NOW_MS)
    return list(dead_letter_records(rows))


def test_a_dead_letter_has_the_original_message_its_error_and_its_origin() -> None:
    headers = [("reason", b"not a sample"), ("topic", b"t"), ("partition", b"0"), ("offset", b"0")]
    assert letters(b"no sample") == [Record("t/0/0", b"no sample", headers)]


def test_a_time_that_python_does_not_have_is_no_obstacle() -> None:
    raw = value(timestamp="9999-12-31T23:59:59-01:00")
    (letter,) = letters(raw)
    assert letter.value == raw
    assert ("reason", b"from the future") in letter.headers


def test_a_letter_that_is_too_large_names_the_place_of_its_bytes() -> None:
    largest, too_large = letters(b"x" * 900_000, b"x" * 900_001)
    assert (len(largest.value), "raw" in dict(largest.headers)) == (900_000, False)
    assert (too_large.key, too_large.value) == ("t/0/1", b"")
    assert dict(too_large.headers)["raw"] == b"in the table dead_letters"
