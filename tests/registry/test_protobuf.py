"""Protobuf payloads by their schema. Google's own library encodes what is decoded here."""

from __future__ import annotations

import resource
import struct
from typing import Any

import pytest

from penstock.registry.protobuf import ProtobufSchema
from penstock.registry.protobuf_schema import InvalidSchema, parse_proto

SCHEMA = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto"; // known without a reference
option java_package = "com.example";
/* An order,
   with } braces in a comment */
message Order {
  option deprecated = true;
  reserved 20, 30 to 40; reserved "old";
  int64 id = 1;
  string customer = 2 [json_name = "who", (custom) = { a: [1, 2] }];
  repeated Item items = 3;
  Status status = 4;
  map<string, int32> counts = 5;
  google.protobuf.Timestamp created = 6;
  oneof payment { Card card = 7; bytes voucher = 8; }
  repeated sint32 deltas = 9;
  double total = 10;
  fixed64 stamp = 11;
  bool paid = 12;
  uint64 large = 13;
  message Item { string sku = 1; int32 quantity = 2; message Part { string name = 1; } repeated Part p = 3; }
  message Card { string number = 1; }
  enum Status { UNKNOWN = 0; SHIPPED = 1; LOST = -1; }
}
message Other { .shop.v1.Order.Item item = 1; }
service Orders { rpc Get (Order) returns (Other) { option (x) = "y"; } }
"""


def google(values: dict[str, Any], message: str = "Order") -> bytes:
    """The bytes that Google's library makes of an order."""
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2

    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop.v1", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = descriptor_pb2.FieldDescriptorProto
    order = file.message_type.add(name="Order")

    def add(to: Any, name: str, number: int, type_: int, of: str = "", repeated: bool = False) -> None:
        label = kind.LABEL_REPEATED if repeated else kind.LABEL_OPTIONAL
        to.field.add(name=name, number=number, type=type_, label=label, **({"type_name": of} if of else {}))

    item = order.nested_type.add(name="Item")
    add(item, "sku", 1, kind.TYPE_STRING)
    add(item, "quantity", 2, kind.TYPE_INT32)
    card = order.nested_type.add(name="Card")
    add(card, "number", 1, kind.TYPE_STRING)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, kind.TYPE_STRING)
    add(entry, "value", 2, kind.TYPE_INT32)
    status = order.enum_type.add(name="Status")
    for name, number in (("UNKNOWN", 0), ("SHIPPED", 1), ("LOST", -1)):
        status.value.add(name=name, number=number)
    add(order, "id", 1, kind.TYPE_INT64)
    add(order, "customer", 2, kind.TYPE_STRING)
    add(order, "items", 3, kind.TYPE_MESSAGE, ".shop.v1.Order.Item", repeated=True)
    add(order, "status", 4, kind.TYPE_ENUM, ".shop.v1.Order.Status")
    add(order, "counts", 5, kind.TYPE_MESSAGE, ".shop.v1.Order.CountsEntry", repeated=True)
    add(order, "created", 6, kind.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    add(order, "card", 7, kind.TYPE_MESSAGE, ".shop.v1.Order.Card")
    add(order, "deltas", 9, kind.TYPE_SINT32, repeated=True)
    add(order, "total", 10, kind.TYPE_DOUBLE)
    add(order, "stamp", 11, kind.TYPE_FIXED64)
    add(order, "paid", 12, kind.TYPE_BOOL)
    add(order, "large", 13, kind.TYPE_UINT64)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.v1.{message}"))()
    data: bytes = json_format.ParseDict(values, made).SerializeToString()
    return data


def test_every_type_of_field_is_decoded() -> None:
    values = {
        "id": 9007199254740993,
        "customer": "ada",
        "items": [{"sku": "A", "quantity": 2}, {"sku": "B", "quantity": -1}],
        "status": "LOST",
        "counts": {"x": 1, "y": -2},
        "created": "2030-01-31T12:00:00.500Z",
        "card": {"number": "42"},
        "deltas": [1, -1, 300],
        "total": 9.75,
        "stamp": 2**63 + 1,
        "paid": True,
        "large": 2**64 - 1,
    }
    name, found = ProtobufSchema(SCHEMA, []).decode(b"\x00" + google(values))
    assert (name, found) == ("shop.v1.Order", {**values, "created": "2030-01-31T12:00:00.5Z"})


def test_indexes_name_nested_messages() -> None:
    schema = ProtobufSchema(SCHEMA, [])
    assert schema.decode(b"\x02\x02" + b"\x0a\x03\x0a\x01s") == ("shop.v1.Other", {"item": {"sku": "s"}})
    assert schema.decode(b"\x06\x00\x00\x00" + b"\x0a\x01p") == ("shop.v1.Order.Item.Part", {"name": "p"})
    with pytest.raises(ValueError, match="no message"):
        schema.decode(b"\x02\x08")


def test_unknown_fields_are_kept_and_wrong_bytes_refused() -> None:
    schema = ProtobufSchema(
        "message M { optional string name = 1; repeated group G = 2 { optional int32 n = 1; } }", []
    )
    assert schema.decode(b"\x00\x0a\x01a\x48\x07") == ("M", {"name": "a", "#9": "Bw=="})
    assert schema.decode(b"\x00\x13\x08\x05\x14") == ("M", {"g": [{"n": 5}]})
    for wrong in (
        b"\x01",
        b"\x00\x0a\x05a",
        b"\x00\x0a",
        b"\x00\xff",
        b"\x00\x0f",
        b"\x00\x0a\x01\xff",
        b"\x00\x13\x08\x05",
    ):
        with pytest.raises(ValueError):
            schema.decode(wrong)
    bomb = b""
    for _ in range(70):
        bomb = b"\x0a" + bytes([len(bomb) & 0x7F | 0x80, len(bomb) >> 7]) + bomb
    nested = ProtobufSchema("message N { N n = 1; }", [])
    with pytest.raises(ValueError, match="too deep"):
        nested.decode(b"\x00" + bomb)


def test_imported_types_and_wrapped_values() -> None:
    other = 'syntax = "proto2"; package common; message Money { required string currency = 1; }'
    text = """
      package shop; import "common/money.proto";
      message P { common.Money price = 1; google.protobuf.StringValue note = 2;
                  google.protobuf.Duration d = 3; float f = 4; }
    """
    payload = (
        b"\x00\x0a\x05\x0a\x03EUR\x12\x03\x0a\x01n\x1a\x02\x08\x03"
        + b"\x25"
        + struct.pack("<f", float("inf"))
    )
    assert ProtobufSchema(text, [other]).decode(payload) == (
        "shop.P",
        {"price": {"currency": "EUR"}, "note": "n", "d": "3s", "f": "inf"},
    )
    with pytest.raises(InvalidSchema, match=r"common\.Money"):
        ProtobufSchema(text, [])


@pytest.mark.parametrize(
    "text",
    ["message", "message M {", "message M { int32 x 1; }", "message M { int32 x = y; }", "message M { § }"],
)
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_proto(text)


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(InvalidSchema, match="too deep"):
        parse_proto("message A { " * 100)


def test_nested_messages_count_towards_one_limit() -> None:
    """Small messages inside of others became millions of values: only those of one level were counted."""
    schema = ProtobufSchema("message A { repeated B b = 1; } message B { repeated int32 n = 1; }", [])
    inner = b"\x0a\xc8\x01" + b"\x01" * 200
    nested = b"\x00" + (b"\x0a" + b"\xcb\x01" + inner) * 1000
    with pytest.raises(ValueError, match="more than 50000 fields"):
        schema.decode(nested)


def test_values_that_do_not_fit_their_field_are_unknown_fields() -> None:
    """They were read as the type of the schema: a fixed number as a string, a varint as text."""
    schema = ProtobufSchema("message M { string name = 1; int32 n = 2; repeated int32 all = 3; }", [])
    payload = b"\x00" + b"\x08\x6d" + b"\x15\x01\x02\x03\x04" + b"\x1a\x02\x01\x02" + b"\x18\x03"
    assert schema.decode(payload) == ("M", {"all": [1, 2, 3], "#1": "bQ==", "#2": "AQIDBA=="})
    with pytest.raises(ValueError):
        schema.decode(b"\x00\x02\x00")  # a field with the number 0


def test_unknown_groups_and_long_numbers_are_kept() -> None:
    schema = ProtobufSchema("message M {}", [])
    payload = b"\x00" + b"\x2b\x08\x96\x01\x2c" + b"\x31" + bytes(range(8))
    assert schema.decode(payload) == ("M", {"#5": {"#1": "lgE="}, "#6": "AAECAwQFBgc="})


def test_maps_have_messages_and_keys_of_other_types() -> None:
    schema = ProtobufSchema("message M { map<bool, N> m = 1; message N { E e = 1; } enum E { A = 0; } }", [])
    payload = b"\x00" + b"\x0a\x06\x08\x01\x12\x02\x08\x00" + b"\x0a\x04\x12\x02\x08\x07"
    assert schema.decode(payload) == ("M", {"m": {"true": {"e": "A"}, "": {"e": 7}}})


def test_a_payload_of_small_messages_costs_no_memory_for_their_types() -> None:
    """The library reserves memory for each field of a type: here 8 KB for each two bytes of a payload."""
    fields = " ".join(f"optional int64 f{number} = {number};" for number in range(1, 1001))
    schema = ProtobufSchema(f"message A {{ repeated B b = 1; }} message B {{ {fields} }}", [])
    payload = b"\x00" + b"\x0a\x00" * 500_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match="more than 50000 fields"):
        schema.decode(payload)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10, "KiB; it was 4 GB"
    groups = ProtobufSchema(f"message A {{ repeated group B = 1 {{ {fields} }} }}", [])
    with pytest.raises(ValueError, match="with groups has more than 100000 bytes"):
        groups.decode(b"\x00" + b"\x0b\x0c" * 500_000)


def test_a_schema_with_an_invalid_number_of_a_field_decodes_nothing() -> None:
    schema = ProtobufSchema("message M { int32 n = 0; } message N { int32 n = 536870912; }", [])
    for payload in (b"\x00\x08\x01", b"\x02\x02\x08\x01"):
        with pytest.raises(ValueError, match="invalid fields"):
            schema.decode(payload)
