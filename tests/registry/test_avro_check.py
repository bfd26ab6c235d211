"""The check of Avro values agrees with fastavro on valid values, and ends before any limit is exceeded."""

from __future__ import annotations

import io
from typing import Any

import pytest

from penstock.registry.avro_check import check_avro

fastavro = pytest.importorskip("fastavro")
ALL: dict[str, Any] = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "a", "type": "null"},
        {"name": "b", "type": "boolean"},
        {"name": "c", "type": "int"},
        {"name": "d", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "e", "type": "float"},
        {"name": "f", "type": "double"},
        {"name": "g", "type": "bytes"},
        {"name": "h", "type": ["null", "string"]},
        {"name": "i", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "j", "type": {"type": "enum", "name": "E", "symbols": ["x", "y"]}},
        {"name": "k", "type": {"type": "array", "items": {"type": "map", "values": "Four"}}},
    ],
}
VALUE = {
    "a": None,
    "b": True,
    "c": -70_000,
    "d": 1_700_000_000_000,
    "e": 1.5,
    "f": -2.5,
    "g": b"bytes",
    "h": "text",
    "i": b"four",
    "j": "y",
    "k": [{"one": b"1111"}, {}, {"two": b"2222", "three": b"3333"}],
}


def parsed(schema: Any) -> tuple[Any, dict[str, Any]]:
    named: dict[str, Any] = {}
    return fastavro.parse_schema(schema, named_schemas=named), named


def test_values_of_all_types_pass_and_cut_ones_do_not() -> None:
    schema, named = parsed(ALL)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, VALUE)
    data = stream.getvalue()
    check_avro(schema, named, data)
    for end in range(len(data)):
        with pytest.raises(ValueError, match="cut off"):
            check_avro(schema, named, data[:end])


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"type": "array", "items": "null"}, bytes.fromhex("808080808040")),
        (
            {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]},
            b"\x02" * 61 + b"\x00",
        ),
        ({"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}, b"\xfe\xff\x7f\x00"),
    ],
)
def test_values_without_end_are_refused(schema: Any, data: bytes) -> None:
    with pytest.raises(ValueError, match="too deep or has too many"):
        check_avro(*parsed(schema), data)
