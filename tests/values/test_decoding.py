"""Values by the schemas of a registry, and the columns of these schemas."""

from __future__ import annotations

import datetime
import io
import json
import pickle
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.registry.http import RegistryRefused, RegistryUnreachable
from penstock.registry.prefix import prefix_of
from penstock.registry.schemas import SchemaVersion
from penstock.registry.settings import registry_settings
from penstock.values.decoding import (
    JsonDecoder,
    LibraryMissing,
    RegistryDecoder,
    Undecodable,
    columns_of,
)
from penstock.values.fitting import fit
from penstock.values.types import is_json
from tests.console.registry_server import Registry, registry_server

INSTANT = pa.timestamp("us", "UTC")
NOW = datetime.datetime(2026, 11, 19, 12, tzinfo=datetime.UTC)
ITEM = {"type": "record", "name": "Item", "fields": [{"name": "n", "type": "int"}]}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {
            "name": "item",
            "type": {"type": "record", "name": "Item", "fields": [{"name": "n", "type": "int"}]},
        },
        {"name": "other", "type": ["null", "Item"]},
        {"name": "either", "type": ["int", "string"]},
        {"name": "next", "type": ["null", "Order"]},
    ],
}
ORDER: dict[str, Any] = {
    "id": 7,
    "small": 1,
    "note": None,
    "at": NOW,
    "price": Decimal("1.50"),
    "key": "00000000-0000-0000-0000-000000000001",
    "tags": ["a"],
    "counts": {"x": 1},
    "state": "SENT",
    "item": {"n": 3},
    "other": {"n": 4},
    "either": "text",
    "next": None,
}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Ride {
  string city = 1;
  int64 km = 2;
  optional int32 tip = 3;
  google.protobuf.Timestamp at = 4;
  Driver driver = 5;
  repeated string tags = 6;
  map<string, double> prices = 7;
  bytes raw = 8;
  State state = 9;
  Ride before = 10;
  message Driver { string name = 1; }
  enum State { OPEN = 0; DONE = 1; }
}
"""


@pytest.fixture
def registry() -> Iterator[Registry]:
    with registry_server() as running:
        yield running


def decoder(registry: Registry) -> RegistryDecoder:
    # Workers get it pickled.
    made: RegistryDecoder = pickle.loads(pickle.dumps(RegistryDecoder(registry_settings({}, registry.url))))
    return made


def avro_bytes(schema: Any, value: Any) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_avro_records_have_the_columns_of_their_schema(registry: Registry) -> None:
    registry.schemas[1] = {"schema": json.dumps(AVRO), "references": []}
    decoded = decoder(registry).decode(prefix_of(1) + avro_bytes(AVRO, ORDER))
    columns = decoded.columns
    assert columns is not None
    assert {field.name: field.type for field in columns if not is_json(field)} == {
        "id": pa.int64(),
        "small": pa.int32(),
        "note": pa.string(),
        "at": INSTANT,
        "price": pa.decimal128(9, 2),
        "key": pa.string(),
        "tags": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int32()),
        "state": pa.string(),
        "item": pa.struct([("n", pa.int32())]),
        "other": pa.struct([("n", pa.int32())]),
    }
    assert [field.name for field in columns if is_json(field)] == ["either", "next"]
    fitted = fit([decoded.value], columns)
    assert fitted.reasons == [None]
    assert fitted.column.to_pylist() == [{**ORDER, "counts": [("x", 1)], "either": '"text"'}]


def test_avro_records_without_fields_are_json_text(registry: Registry) -> None:
    empty = {"type": "record", "name": "Empty", "fields": []}
    fields = [
        {"name": "one", "type": empty},
        {"name": "some", "type": {"type": "array", "items": "Empty"}},
        {"name": "maybe", "type": ["null", "Empty"]},
    ]
    schema = {"type": "record", "name": "Order", "fields": fields}
    registry.schemas[1] = {"schema": json.dumps(schema)}
    value: dict[str, Any] = {"one": {}, "some": [{}], "maybe": None}
    decoded = decoder(registry).decode(prefix_of(1) + avro_bytes(schema, value))
    assert decoded.columns is not None
    assert all(is_json(field) for field in decoded.columns)
    fitted = fit([decoded.value], decoded.columns)
    assert (fitted.reasons, fitted.column.to_pylist()) == (
        [None],
        [{"one": "{}", "some": "[{}]", "maybe": None}],
    )


@pytest.mark.parametrize("unit", ["millis", "micros"])
def test_local_timestamps_of_avro_are_those_of_utc(registry: Registry, unit: str) -> None:
    local = {"type": "long", "logicalType": f"local-timestamp-{unit}"}
    fields = [{"name": "at", "type": local}, {"name": "all", "type": {"type": "array", "items": local}}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    registry.schemas[1] = {"schema": json.dumps(schema)}
    naive = NOW.replace(tzinfo=None)
    body = avro_bytes(schema, {"at": naive, "all": [naive]})
    decoded = decoder(registry).decode(prefix_of(1) + body)
    assert decoded.columns == pa.struct([("at", INSTANT), ("all", pa.list_(INSTANT))])
    # whole columns at once, and one by one because of a value that does not fit
    for values in ([decoded.value], [decoded.value, {"at": True}]):
        fitted = fit(values, decoded.columns)
        assert fitted.reasons[0] is None
        assert fitted.column.to_pylist()[0] == {"at": NOW, "all": [NOW]}


def test_protobuf_messages_have_defaults_where_fields_have_no_presence(registry: Registry) -> None:
    registry.schemas[2] = {"schema": PROTO, "schemaType": "PROTOBUF"}
    # the first message of the file; city = "Rome", at = 1 s, driver = {}
    body = b"\x00" + b"\x0a\x04Rome" + b"\x22\x02\x08\x01" + b"\x2a\x00"
    decoded = decoder(registry).decode(prefix_of(2) + body)
    assert decoded.columns is not None
    assert {field.name: str(field.type) for field in decoded.columns} == {
        "city": "string",
        "km": "int64",
        "tip": "int32",
        "at": "timestamp[us, tz=UTC]",
        "driver": "struct<name: string>",
        "tags": "list<item: string>",
        "prices": "map<string, double>",
        "raw": "binary",
        "state": "string",
        "before": "string",
    }
    fitted = fit([decoded.value], decoded.columns)
    assert fitted.reasons == [None]
    assert fitted.column.to_pylist() == [
        {
            "city": "Rome",
            "km": 0,
            "tip": None,
            "at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
            "driver": {"name": ""},
            "tags": [],
            "prices": [],
            "raw": b"",
            "state": "OPEN",
            "before": None,
        }
    ]


def test_json_has_the_columns_of_its_json_schema(registry: Registry) -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": ["string", "null"], "format": "date-time"},
            "place": {"$ref": "#/definitions/place"},
            "any": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "prices": {"type": "array", "items": {"type": "number"}},
        },
        "definitions": {"place": {"properties": {"city": {"type": "string"}}}},
    }
    registry.schemas[3] = {"schema": json.dumps(schema), "schemaType": "JSON"}
    value = {"id": 1, "at": "2026-11-19T12:00:00Z", "place": {"city": "Oslo"}, "any": 5, "extra": 1}
    decoded = decoder(registry).decode(prefix_of(3) + json.dumps(value).encode())
    assert decoded.columns == pa.struct(
        [
            ("id", pa.int64()),
            ("at", INSTANT),
            ("place", pa.struct([("city", pa.string())])),
            ("any", pa.string()),
            ("maybe", pa.bool_()),
            ("labels", pa.map_(pa.string(), pa.string())),
            ("prices", pa.list_(pa.float64())),
        ]
    )
    (row,) = fit([decoded.value], decoded.columns).column.to_pylist()
    assert (row["id"], row["at"], row["any"]) == (1, NOW, "5")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no prefix"),
        (b"\x01\x00\x00\x00\x01x", "no prefix"),
        (prefix_of(1) + b"\xff", "does not fit schema 1"),
        (prefix_of(1) + b"\x0e\x00", "bytes are left"),
        (prefix_of(9) + b"x", "^the schema registry has no schema 9$"),
        (prefix_of(4) + b"x", "schema 4 cannot be used"),
        (prefix_of(5) + b"{", "does not fit schema 5"),
    ],
)
def test_undecodable_messages_have_a_reason(registry: Registry, data: bytes, reason: str) -> None:
    one = {"type": "record", "name": "One", "fields": [{"name": "id", "type": "long"}]}
    registry.schemas |= {
        1: {"schema": json.dumps(one)},
        4: {"schema": "{", "schemaType": "PROTOBUF"},
        5: {"schema": "{}", "schemaType": "JSON"},
    }
    decoding = decoder(registry)
    # The second one finds what the first has found.
    for _ in range(2):
        with pytest.raises(Undecodable, match=reason):
            decoding.decode(data)


def test_a_recursive_avro_value_ends_no_process(registry: Registry) -> None:
    deep = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
    registry.schemas[1] = {"schema": json.dumps(deep)}
    with pytest.raises(Undecodable, match="nested too deep"):
        decoder(registry).decode(prefix_of(1) + b"\x02" * 100_000 + b"\x00")


def test_a_registry_that_fails_is_no_fault_of_a_message(registry: Registry) -> None:
    registry.user = "ann:secret"
    with pytest.raises(RegistryRefused):
        decoder(registry).decode(prefix_of(1) + b"x")
    with registry_server() as other:
        gone = decoder(other)
    with pytest.raises(RegistryUnreachable):
        gone.decode(prefix_of(1) + b"x")


def test_each_schema_is_fetched_once(registry: Registry) -> None:
    registry.schemas[3] = {"schema": '{"type":"object"}', "schemaType": "JSON"}
    own = decoder(registry)
    assert [own.decode(prefix_of(3) + b'{"a":1}').value for _ in range(3)] == [{"a": 1}] * 3
    assert registry.requested == ["GET /schemas/ids/3"]


def test_json_without_a_schema() -> None:
    decode = pickle.loads(pickle.dumps(JsonDecoder())).decode
    assert decode(b'{"a": [1]}') == ({"a": [1]}, None)
    for data in (b"", b"{", b"\xff", b"{}{}"):
        with pytest.raises(Undecodable, match="not JSON"):
            decode(data)


@pytest.mark.parametrize(
    ("library", "schema", "extra"),
    [
        ("fastavro", {"schema": json.dumps(ITEM)}, r"fastavro is missing: pip install '.*\[avro\]'"),
        (
            "penstock.registry.protobuf",
            {"schema": PROTO, "schemaType": "PROTOBUF"},
            r"protobuf is missing: pip install '.*\[protobuf\]'",
        ),
    ],
)
def test_a_missing_library_is_no_fault_of_a_message(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, library: str, schema: dict[str, Any], extra: str
) -> None:
    registry.schemas[1] = schema
    registry.schemas[1].setdefault("references", [])
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"{library}.schema", None)
    own = decoder(registry)
    for _ in range(2):
        with pytest.raises(LibraryMissing, match=extra):
            own.decode(prefix_of(1) + b"\x02")
    with pytest.raises(LibraryMissing, match=extra):
        columns_of(SchemaVersion(schema["schema"], schemaType=schema.get("schemaType")), [])
