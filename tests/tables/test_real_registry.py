"""Tables of Avro, JSON Schema and Protobuf with a real registry, Apicurio: run by `make tables`.

What writes is the client's own serializers.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from lab.apicurio import apicurio_registry
from penstock.client import Registry
from penstock.registry.settings import registry_settings
from penstock.tables.batches import TableBatches
from penstock.tables.definition import TableDefinition
from penstock.tables.job import decoders_of
from tests.tables.in_process import definition, new_batches, rows_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not os.environ.get("TABLE_KILLS"), reason="make tables"),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="the registry comes from Maven Central"),
]


class Written(NamedTuple):
    """A message whose key is bytes."""

    offset: int
    value: bytes | None
    key: Any
    partition: int = 0
    second: int | None = None


class Key(bytes):
    """Bytes that a message of tests takes for text."""

    def encode(self) -> bytes:
        return bytes(self)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with apicurio_registry(tmp_path_factory.mktemp("registry") / "apicurio.log") as url:
        yield url


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def opened(place: Path, url: str, **changes: Any) -> tuple[TableDefinition, TableBatches]:
    table = definition(place, schema="registry", registry=url, **changes)
    return table, new_batches(table, decoders=decoders_of(table, registry_settings({}, url)))


def test_keys_of_two_avro_schemas_are_one_row(registry: str, tmp_path: Path) -> None:
    keys = [
        Registry(registry).avro("shop-key", record("ShopKey", shop="int", id="long")),
        Registry(registry).avro("shop2-key", record("ShopKey", id="long", shop="int")),
    ]
    assert keys[0].encode({"shop": 1, "id": 2})[:5] != keys[1].encode({"shop": 1, "id": 2})[:5]
    values = Registry(registry).avro("shop-value", record("Order", n="long"))
    table, running = opened(tmp_path, registry, mode="upsert", key="registry")

    def message(offset: int, schema: int, number: int, value: Any) -> Any:
        key = Key(keys[schema].encode({"shop": 7, "id": number}))
        return Written(offset, None if value is None else values.encode(value), key)

    running.process([message(n, 0, n, {"n": n}) for n in range(4)], 0)
    running.process([message(4, 1, 0, {"n": 40}), message(5, 1, 1, None), message(6, 0, 2, None)], 1)
    assert sorted((row["_key"], row["n"]) for row in rows_of(table.to)) == [
        ('{"id":0,"shop":7}', 40),
        ('{"id":3,"shop":7}', 3),
    ]


def test_avro_values_bring_columns(registry: str, tmp_path: Path) -> None:
    inner = {"type": "map", "values": record("Part", a="long")}
    grown = {"type": "map", "values": record("Part", a="long", b=["null", "string"])}
    subjects = (
        ("first-value", record("Order", id="long", m=inner)),
        (
            "second-value",
            record("Order", id="long", m=grown, at={"type": "long", "logicalType": "timestamp-millis"}),
        ),
    )
    one, other = (Registry(registry).avro(*each) for each in subjects)
    table, running = opened(tmp_path, registry)
    running.process([Written(0, one.encode({"id": 1, "m": {"x": {"a": 1}}}), "k")], 0)
    new = other.encode({"id": 2, "m": {"y": {"a": 2, "b": "z"}}, "at": 1_760_000_000_000})
    running.process([Written(1, new, "k"), Written(2, b"\0\0\1\0\0\0", "k")], 1)
    rows = rows_of(table.to)
    assert [(row["id"], row["m"]) for row in rows] == [
        (1, [("x", {"a": 1, "b": None})]),
        (2, [("y", {"a": 2, "b": "z"})]),
    ]
    assert rows[1]["at"].isoformat() == "2025-10-09T08:53:20+00:00"
    (dead,) = rows_of(f"{table.root}/{table.dead_letters}")
    assert dead["reason"] == "the schema registry has no schema 65536"


def test_json_schema_values(registry: str, tmp_path: Path) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    }
    values = Registry(registry).json("json-value", schema=schema)
    table, running = opened(tmp_path, registry)
    running.process(
        [
            Written(0, values.encode({"id": 1, "tags": ["x"]}), "k"),
            Written(1, values.encode({"id": "text"}), "k"),
        ],
        0,
    )
    assert [(row["id"], row["tags"]) for row in rows_of(table.to)] == [(1, ["x"])]
    (dead,) = rows_of(f"{table.root}/{table.dead_letters}")
    assert dead["reason"] == "id is a long, and 'text' does not fit"


def payment_class() -> Any:
    """The class of a message with a nested one, as protoc generates it."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    optional = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    message = file.message_type.add(name="Payment")
    message.field.add(name="cents", number=1, type=3, label=optional)
    message.field.add(name="note", number=2, type=9, label=optional)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Payment"))


def test_protobuf_values(registry: str, tmp_path: Path) -> None:
    payment = payment_class()
    proto = 'syntax = "proto3"; package shop; message Payment { int64 cents = 1; string note = 2; }'
    values = Registry(registry).protobuf(payment, "proto-value", proto=proto)
    table, running = opened(tmp_path, registry)
    running.process([Written(0, values.encode(payment(cents=5, note="é")), "k")], 0)
    assert [(row["cents"], row["note"]) for row in rows_of(table.to)] == [(5, "é")]
