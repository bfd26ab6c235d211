"""Serializers with the prefix of a registry."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

from penstock.client import JSON, MisusedClient, Registry, SerializationError
from penstock.client.serializers import encoded
from penstock.registry.http import RegistryRefused, RegistryUnreachable
from tests.console.registry_server import Registry as Served
from tests.console.registry_server import registry_server

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}],
}
WITH_ITEM = {**ORDER, "fields": [*ORDER["fields"], {"name": "item", "type": "string", "default": "?"}]}


@dataclass
class Payment:
    cents: int


@pytest.fixture
def served() -> Iterator[Served]:
    with registry_server() as served:
        yield served


def prefixed(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


def test_avro_has_the_number_of_its_schema(served: Served) -> None:
    serializer = Registry(served.url).avro("orders-value", ORDER)
    raw = serializer.encode({"id": 1})
    assert raw == prefixed(1, b"\x02")
    assert served.subjects["orders-value"] == {1: [1, False]}
    assert Registry(served.url).avro().decode(raw) == {"id": 1}


def test_a_reader_gets_values_as_its_own_schema_has_them(served: Served) -> None:
    old = Registry(served.url).avro("orders-value", ORDER).encode({"id": 1})
    reader = Registry(served.url).avro(schema=WITH_ITEM)
    assert reader.decode(old) == {"id": 1, "item": "?"}
    newer = Registry(served.url).avro("orders-value", WITH_ITEM).encode({"id": 2, "item": "tea"})
    assert newer[:5] == prefixed(2, b"")
    assert Registry(served.url).avro(schema=ORDER).decode(newer) == {"id": 2}


def test_a_producer_may_use_the_latest_schema_of_a_subject(served: Served) -> None:
    served.add("orders-value", ORDER)
    number = served.add("orders-value", WITH_ITEM)
    serializer = Registry(served.url).avro("orders-value")
    assert serializer.encode({"id": 1, "item": "a"}) == prefixed(number, b"\x02\x02a")


def test_a_schema_may_refer_to_others(served: Served) -> None:
    customer = {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}
    order = {**ORDER, "fields": [{"name": "customer", "type": "Customer"}]}
    served.add("customer", customer)
    number = served.add(
        "orders-value", order, "AVRO", {"name": "Customer", "subject": "customer", "version": 1}
    )
    found = Registry(served.url).avro().decode(prefixed(number, b"\x06Ada"))
    assert found == {"customer": {"name": "Ada"}}


def test_each_schema_is_fetched_once(served: Served) -> None:
    writer = Registry(served.url).avro("orders-value", ORDER)
    reader = Registry(served.url).avro()
    for number in range(3):
        assert reader.decode(writer.encode({"id": number})) == {"id": number}
    assert sum("/schemas/ids/" in each for each in served.requested) == 1


def test_a_missing_schema_is_asked_for_again_after_a_minute(served: Served) -> None:
    now = 100.0
    registry = Registry(served.url, clock=lambda: now)
    reader, raw = registry.avro(), prefixed(1, b"\x02")
    with pytest.raises(RegistryRefused, match="Schema not found"):
        reader.decode(raw)
    served.add("orders-value", ORDER)
    with pytest.raises(ValueError, match="the schema registry has no schema 1"):
        reader.decode(raw)
    now += 61
    assert reader.decode(raw) == {"id": 1}


def test_json_of_a_type_is_checked(served: Served) -> None:
    serializer = Registry(served.url).json("payments-value", Payment)
    raw = serializer.encode(Payment(3))
    assert raw == prefixed(1, b'{"cents":3}')
    assert served.schemas[1]["schemaType"] == "JSON"
    registered = json.loads(served.schemas[1]["schema"])
    assert registered["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert registered["$defs"]["Payment"]["required"] == ["cents"]
    assert serializer.decode(raw) == Payment(3)
    with pytest.raises(Exception, match="Expected `int`"):
        serializer.decode(prefixed(1, b'{"cents":"no"}'))


def test_json_of_plain_data(served: Served) -> None:
    serializer = Registry(served.url).json("payments-value", schema={"type": "object"})
    assert serializer.decode(serializer.encode({"a": 1})) == {"a": 1}
    latest = Registry(served.url).json("payments-value")
    assert latest.encode([1]) == prefixed(1, b"[1]")


def test_protobuf_has_the_indexes_of_its_message(served: Served) -> None:
    """The first message of a file is a single 0; others are a length and indexes, doubled by zigzag."""
    registry = Registry(served.url)
    third = registry.protobuf(Int64Value, "numbers-value")
    assert third.encode(Int64Value(value=1)) == prefixed(1, b"\x02\x04\x08\x01")
    assert third.decode(prefixed(1, b"\x02\x04\x08\x01")) == Int64Value(value=1)
    with pytest.raises(ValueError, match=r"it is message \[2\] of its schema, and .*StringValue is \[7\]"):
        registry.protobuf(StringValue).decode(prefixed(1, b"\x02\x04\x08\x01"))
    for cut in (b"\x02", b"\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="cut off or too large"):
            third.decode(prefixed(1, cut))


def proto_message(name: str, *imports: str) -> Any:
    """The nested message of a file, as protoc generates it."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto3")
    file.dependency.extend(imports)
    outer = file.message_type.add(name="Outer")
    for nested in ("First", "Second"):
        field = outer.nested_type.add(name=nested).field.add(name="x", number=1, type=5, label=1)
        assert field.name == "x"
    pool = descriptor_pool.DescriptorPool()
    for each in imports:
        pool.Add(descriptor_pb2.FileDescriptorProto(name=each, syntax="proto3"))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.Outer.Second"))


def test_a_nested_message_has_the_path_to_it(served: Served) -> None:
    nested = proto_message("nested")
    serializer = Registry(served.url).protobuf(nested, "nested-value", proto="message Outer {}")
    raw = serializer.encode(nested(x=1))
    assert raw == prefixed(1, b"\x04\x00\x02\x08\x01")
    assert serializer.decode(raw) == nested(x=1)
    assert served.schemas[1]["schema"] == "message Outer {}"


def test_a_file_with_imports_must_be_registered_before(served: Served) -> None:
    importing = proto_message("importing", "money.proto")
    with pytest.raises(MisusedClient, match=r"imports money\.proto: register it, and pass its text as proto"):
        Registry(served.url).protobuf(importing, "payments-value")
    assert Registry(served.url).protobuf(importing).decode is not None


def test_a_message_of_another_kind_is_refused(served: Served) -> None:
    registry = Registry(served.url)
    raw = registry.json("payments-value", Payment).encode(Payment(1))
    with pytest.raises(ValueError, match="schema 1 is JSON, not AVRO"):
        registry.avro().decode(raw)
    with pytest.raises(ValueError, match="the latest schema of payments-value is JSON, not AVRO"):
        registry.avro("payments-value")
    with pytest.raises(ValueError, match="it has no prefix of a schema registry"):
        registry.avro().decode(JSON.encode({"id": 1}))


def test_without_register_the_schema_must_be_there(served: Served) -> None:
    with pytest.raises(RegistryRefused, match="Subject not found"):
        Registry(served.url).avro("orders-value", ORDER, register=False)
    assert not served.subjects
    number = Registry(served.url).avro("orders-value", ORDER).encode({"id": 1})[:5]
    assert Registry(served.url).avro("orders-value", ORDER, register=False).encode({"id": 1})[:5] == number


def test_a_producer_needs_a_subject_and_a_schema(served: Served) -> None:
    registry = Registry(served.url)
    for serializer in (registry.avro(schema=ORDER), registry.avro(), registry.json(kind=Payment)):
        with pytest.raises(SerializationError, match="a producer needs the subject of its schema"):
            encoded("value", {"id": 1}, serializer.encode)


def test_a_registry_that_does_not_answer_ends_the_start() -> None:
    with pytest.raises(RegistryUnreachable, match="does not answer"):
        Registry("http://127.0.0.1:1", timeout=1).avro("orders-value", ORDER)
