"""Equal keys have one name, whichever schema has written them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from penstock.tables.keys import KeyReader, ReadKeys, name_of
from penstock.values.decoding import JsonDecoder


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("text", b"text"),
        (5, b"5"),
        (5.0, b"5"),
        (5.5, b"5.5"),
        (float("nan"), b'"nan"'),
        (float("inf"), b'"inf"'),
        (2.0**60, b"1.152921504606847e18"),
        (None, b"null"),
        (True, b"true"),
        (Decimal("1.50"), b'"1.5"'),
        ({"b": 1, "a": [{"d": 2.0, "c": None}]}, b'{"a":[{"c":null,"d":2}],"b":1}'),
    ],
)
def test_names_are_part_of_the_format(value: Any, name: bytes) -> None:
    assert name_of(value) == name


def test_the_order_of_fields_makes_no_other_key() -> None:
    reader = KeyReader(decoder=JsonDecoder())
    one, other = reader.read([b'{"shop": 1, "id": 2}', b'{"id": 2.0, "shop": 1}']).names
    assert one == other


def test_keys_without_a_name_have_a_reason() -> None:
    keys = [b"a", None, b"\xff", b"["]
    text = KeyReader().read(keys)
    assert text.names == [b"a", None, None, b"["]
    assert text.reasons == [None, None, "the key: it is not UTF-8 text: keys of this table are text", None]
    decoded = KeyReader(decoder=JsonDecoder()).read([b"1", b"["])
    assert decoded.names == [b"1", None]
    assert str(decoded.reasons[1]).startswith("the key: the value is not JSON")
    assert KeyReader(is_binary=True).read(keys) == ReadKeys(keys, [None] * 4)
