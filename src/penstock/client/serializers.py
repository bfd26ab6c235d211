"""Keys and values to bytes and back.

A `Serializer` is a pair of functions. Where one is expected, a bare function will do: the direction is known.
None is Kafka's null in both directions and never reaches a serializer.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from penstock.client.errors import MisusedClient, SerializationError
from penstock.model.installation import pip_install

__all__ = [
    "BYTES",
    "JSON",
    "MSGPACK",
    "STRING",
    "Decode",
    "Encode",
    "Serializer",
    "avro",
    "decoder",
    "encoded",
    "encoder",
    "json_of",
    "protobuf",
]

Encode: TypeAlias = Callable[[Any], bytes]
Decode: TypeAlias = Callable[[bytes], Any]


class Serializer(NamedTuple):
    """Both directions of one format."""

    encode: Encode
    decode: Decode


def encoder(serializer: Serializer | Encode) -> Encode:
    return serializer.encode if isinstance(serializer, Serializer) else serializer


def decoder(serializer: Serializer | Decode) -> Decode:
    return serializer.decode if isinstance(serializer, Serializer) else serializer


def encoded(what: str, value: Any, encode: Encode) -> bytes | None:
    """A key or a value (`what` says which) as bytes."""
    if value is None:
        return None
    try:
        return encode(value)
    except Exception as e:
        raise SerializationError(
            f"the {what} {value!r:.80} cannot be encoded ({e}): check {what}_serializer"
        ) from e


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} is neither bytes nor str: choose a serializer, JSON for example")


def _itself(raw: bytes) -> bytes:
    return raw


#: The default of clients: bytes unchanged; producers encode text as UTF-8.
BYTES = Serializer(_as_bytes, _itself)
STRING = Serializer(str.encode, bytes.decode)
JSON = Serializer(msgspec.json.encode, msgspec.json.decode)
MSGPACK = Serializer(msgspec.msgpack.encode, msgspec.msgpack.decode)


def json_of(kind: Any) -> Serializer:
    """JSON that is checked against, and read into, a type: a dataclass, a `msgspec.Struct`, `list[int]`..."""
    return Serializer(msgspec.json.Encoder().encode, msgspec.json.Decoder(kind).decode)


def avro(schema: Any) -> Serializer:
    """Avro's binary encoding of one schema (a parsed JSON document), without a registry's prefix."""
    try:
        import fastavro
    except ImportError as e:
        raise MisusedClient(f"Avro needs fastavro: {pip_install('avro')}") from e
    parsed = fastavro.parse_schema(schema)

    def encode(value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        return out.getvalue()

    def decode(raw: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(raw), parsed, None)

    return Serializer(encode, decode)


def protobuf(message: type[Any]) -> Serializer:
    """Protobuf's encoding of one generated message class, without a registry's prefix."""
    if not (hasattr(message, "FromString") and hasattr(message, "SerializeToString")):
        raise MisusedClient(f"{message!r} is not a class that protoc generates")
    return Serializer(message.SerializeToString, message.FromString)
