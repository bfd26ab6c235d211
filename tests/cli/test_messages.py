"""Messages as lines: what is printed reads back as the same message."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.failure import Failure
from penstock.cli.messages import MessageFormat, Outgoing, format_message, parse_line


class Consumed(NamedTuple):
    """As librdkafka's message: methods, not fields."""

    a_key: bytes | None = None
    a_value: bytes | None = None
    some_headers: list[tuple[str, bytes | None]] | None = None

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def key(self) -> bytes | None:
        return self.a_key

    def value(self) -> bytes | None:
        return self.a_value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.some_headers


NULLABLE = st.none() | st.binary(max_size=40)


@given(key=NULLABLE, value=NULLABLE, headers=st.lists(st.tuples(st.text(max_size=8), NULLABLE), max_size=3))
def test_json_loses_nothing(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = format_message(Consumed(key, value, headers), MessageFormat.JSON, b"")
    assert b"\n" not in line
    assert parse_line(line, MessageFormat.JSON, b"") == Outgoing(
        key, value, headers, partition=3, timestamp_ms=1_700_000_000_000
    )


def test_json_takes_values_that_are_not_strings() -> None:
    assert (
        parse_line(b'{"value": {"a": [1, "\xc3\xa9"]}}', MessageFormat.JSON, b"").value
        == '{"a":[1,"é"]}'.encode()
    )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"value_base64": "!"}',
        b'{"headers": [{}]}',
        b'{"headers": 1}',
        b'{"partition": "x"}',
    ],
)
def test_lines_that_are_no_message_in_json_are_refused(line: bytes) -> None:
    with pytest.raises(Failure, match="not a message in JSON"):
        parse_line(line, MessageFormat.JSON, b"")


def test_key_and_value_are_split_at_the_first_separator() -> None:
    assert parse_line(b"a::b::c", MessageFormat.KEY_VALUE, b"::") == Outgoing(b"a", b"b::c", [])
    with pytest.raises(Failure, match="--key-separator"):
        parse_line(b"ab", MessageFormat.KEY_VALUE, b"::")


def test_plain_formats() -> None:
    assert parse_line(b"a\tb", MessageFormat.VALUE, b"\t") == Outgoing(None, b"a\tb", [])
    assert format_message(Consumed(b"k", b"v"), MessageFormat.VALUE, b"=") == b"v"
    assert format_message(Consumed(b"k", b"v"), MessageFormat.KEY_VALUE, b"=") == b"k=v"
    assert format_message(Consumed(None, None), MessageFormat.KEY_VALUE, b"=") == b"="
