from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client import BYTES, JSON, MSGPACK, STRING, MisusedClient, SerializationError, Serializer
from penstock.client.serializers import avro, decoder, encoded, encoder, json_of, protobuf

_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}


@settings(max_examples=30)
@given(_PLAIN)
def test_json_and_message_pack_carry_plain_data(value: Any) -> None:
    for serializer in (JSON, MSGPACK):
        assert serializer.decode(serializer.encode(value)) == value


@pytest.mark.parametrize(
    ("serializer", "value", "raw"),
    [
        (BYTES, "é", b"\xc3\xa9"),
        (BYTES, bytearray(b"ab"), b"ab"),
        (STRING, "é", b"\xc3\xa9"),
        (JSON, {"a": [1]}, b'{"a":[1]}'),
        (MSGPACK, {"a": 1}, b"\x81\xa1a\x01"),
        (avro(ORDER), {"id": 1, "item": "x"}, b"\x02\x02x"),
        (protobuf(StringValue), StringValue(value="x"), b"\x0a\x01x"),
    ],
)
def test_formats(serializer: Serializer, value: Any, raw: bytes) -> None:
    assert serializer.encode(value) == raw


def test_serializers_decode() -> None:
    assert avro(ORDER).decode(b"\x02\x02x") == {"id": 1, "item": "x"}
    assert protobuf(StringValue).decode(b"\x0a\x01x") == StringValue(value="x")
    assert BYTES.decode(b"\xff") == b"\xff"


@dataclass
class Point:
    x: int


def test_json_of_a_type() -> None:
    serializer = json_of(Point)
    assert serializer.decode(serializer.encode(Point(3))) == Point(3)
    with pytest.raises(Exception, match="Expected `int`"):
        serializer.decode(b'{"x": "no"}')


def test_any_function_will_do() -> None:
    assert encoder(lambda value: b"<%d>" % value)(7) == b"<7>"
    assert decoder(int)(b"7") == 7


def test_none_is_null() -> None:
    assert encoded("value", None, JSON.encode) is None


def test_the_error_names_the_value_that_cannot_be_encoded() -> None:
    with pytest.raises(SerializationError, match=r"the key 7 cannot be encoded .*choose a serializer"):
        encoded("key", 7, BYTES.encode)


def test_a_class_that_is_no_message() -> None:
    with pytest.raises(MisusedClient, match="protoc"):
        protobuf(int)


def test_avro_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MisusedClient, match=r"penstock-mq\[avro\]"):
        avro(ORDER)
