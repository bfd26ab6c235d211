"""Filters of messages: what matches, what does not, and what is refused with a reason."""

from __future__ import annotations

import json

import pytest

from penstock.console.views.filters import InvalidFilter, parse_filter
from penstock.records.record import Record

VALUE = {"user": {"id": 42, "name": "ada"}, "items": [{"price": 9.5}], "ok": True, "big": 9007199254740993}
RECORD = Record(
    7,
    1_700_000_000_000,
    b"eu-1",
    json.dumps(VALUE).encode(),
    (("traceparent", b"00-abc"), ("empty", None)),
)


@pytest.mark.parametrize(
    "text",
    [
        "value.user.id = 42",
        "value.user.id == 42 and key startswith eu-",
        'value.user.name = "ada"',
        "value.items[0].price > 9",
        'value["user"].name endswith a',
        "value.ok = true",
        "value.big = 9007199254740993",
        "offset >= 7 and partition = 3",
        "not (offset > 7 or partition = 0)",
        "header.traceparent contains abc",
        "header.empty exists",
        "not header.nothing exists",
        'timestamp >= "2023-11-14T00:00:00Z"',
        "key matches ^eu-[0-9]+$",
        "size > 10",
        "ADA",
        '"eu-1"',
        "value.user != null",
    ],
)
def test_a_filter_that_matches(text: str) -> None:
    predicate = parse_filter(text)
    assert predicate is not None
    assert predicate(3, RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "value.user.id = 43",
        "value.big = 9007199254740992",
        "value.nothing = 1",
        "value.user.id < 42",
        "value.ok = 1",
        "key = 'eu'",
        "header.nothing contains x",
        "bob",
        "value.items[5].price exists",
        "value.user.name > 3",
    ],
)
def test_a_filter_that_does_not_match(text: str) -> None:
    predicate = parse_filter(text)
    assert predicate is not None
    assert not predicate(3, RECORD)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("value.a =", "ends where"),
        ("value.a = 1 value.b = 2", "combine conditions"),
        ("__import__('os') = 1", "not an operand"),
        ("(value.a = 1", "closing parenthesis"),
        ("value..a = 1", "cannot read the path"),
        ("key matches '('", "not a regular expression"),
        ("timestamp > yesterday", "not a time"),
        ("a" * 1001, "at most 1000"),
        ("(" * 30 + "offset = 1" + ")" * 30, "levels of parentheses"),
        ("offset.x = 1", "has no parts"),
    ],
)
def test_an_invalid_filter_is_explained(text: str, reason: str) -> None:
    with pytest.raises(InvalidFilter, match=reason):
        parse_filter(text)


def test_an_empty_filter_matches_everything() -> None:
    assert parse_filter("  ") is None


def test_values_that_are_not_json_have_no_parts() -> None:
    predicate = parse_filter("value.a = 1 or value.b exists")
    assert predicate is not None
    for value in (None, b"", b"\xff\xfe", b"[" * 100_000):
        assert not predicate(0, Record(0, 0, None, value))


def test_a_hostile_regular_expression_takes_linear_time() -> None:
    predicate = parse_filter("value matches '(a+)+$'")
    assert predicate is not None
    assert not predicate(0, Record(0, 0, None, b"a" * 100_000 + b"!"))
