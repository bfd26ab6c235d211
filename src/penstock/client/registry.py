"""Keys and values with the schemas of a registry: Confluent's prefix, then Avro, JSON or Protobuf.

A serializer with a subject registers its schema, or looks it up, when it is made: this blocks, once. A reader
needs the schemas of writers: each is fetched when the first message with its number is decoded, which blocks
for the timeout at most. A schema that the registry does not have is asked for again after a minute.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from penstock.client.errors import MisusedClient
from penstock.client.serializers import Encode, Serializer, avro, protobuf
from penstock.model.installation import pip_install
from penstock.registry.http import RegistryHttp
from penstock.registry.prefix import PREFIX_SIZE, prefix_of, schema_id
from penstock.registry.schema_cache import SchemaCache, checked_kind
from penstock.registry.schemas import Draft, SchemaVersion, parsed_avro, referenced
from penstock.registry.settings import registry_settings

__all__ = ["Registry"]

_CONTINUES: Final = 0x80
#: of the schemas that msgspec makes
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class _Registered(msgspec.Struct):
    id: int


class Registry:
    """A registry with Confluent's REST API. Its methods make serializers, for producers and consumers alike.

    `config` has the settings of `penstock console --schema-registry-config`: credentials and TLS.
    """

    def __init__(
        self,
        url: str,
        *,
        config: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = RegistryHttp(registry_settings(config or {}, url), timeout_s=timeout)
        self._schemas = SchemaCache(self._http, clock)

    def avro(self, subject: str | None = None, schema: Any = None, *, register: bool = True) -> Serializer:
        """Avro. A reader gets values as `schema` has them, or as they were written without one.

        A producer needs `subject`, such as "orders-value", and writes `schema`, or the latest one of the
        subject. Without `register`, the schema must be in the registry.
        """
        try:
            import fastavro
        except ImportError as e:
            raise MisusedClient(f"Avro needs fastavro: {pip_install('avro')}") from e
        number: int | None
        if subject is not None and schema is None:
            latest = self._latest(subject, "AVRO")
            number, own = latest.id, parsed_avro(latest.schema, referenced(self._http, latest)).parsed
        else:
            own = None if schema is None else fastavro.parse_schema(schema)
            number = self._number(subject, Draft(_text(schema)), register)
        reader = None if schema is None else own
        parsed: dict[int, Any] = {}

        def decode(raw: bytes) -> Any:
            written = _id_of(raw)
            if written not in parsed:
                found = self._schemas.of_kind(written, "AVRO")
                parsed[written] = parsed_avro(found.schema, referenced(self._http, found)).parsed
            return fastavro.schemaless_reader(io.BytesIO(raw[PREFIX_SIZE:]), parsed[written], reader)

        return Serializer(_prefixed(number, _no_subject if own is None else avro(own).encode), decode)

    def json(
        self, subject: str | None = None, kind: Any = None, *, schema: Any = None, register: bool = True
    ) -> Serializer:
        """JSON with the JSON Schema of a type (a dataclass, a `msgspec.Struct`), which values must fit.

        Without a type, values are plain data, and `schema` is registered without a check of values.
        """
        if schema is None and kind is not None:
            # Apicurio recognises JSON Schema by its dialect.
            schema = {"$schema": _DIALECT, **msgspec.json.schema(kind)}
        number: int | None
        if subject is not None and schema is None:
            number = self._latest(subject, "JSON").id
        else:
            number = self._number(subject, Draft(_text(schema), "JSON"), register)
        decoder = msgspec.json.Decoder(Any if kind is None else kind)

        def decode(raw: bytes) -> Any:
            self._schemas.of_kind(_id_of(raw), "JSON")
            return decoder.decode(raw[PREFIX_SIZE:])

        return Serializer(_prefixed(number, msgspec.json.encode), decode)

    def protobuf(
        self,
        message: type[Any],
        subject: str | None = None,
        *,
        proto: str | None = None,
        register: bool = True,
    ) -> Serializer:
        """Protobuf of a generated class. `proto` is the text of its file; by default its descriptor is sent.

        A file that imports others than Google's own must be registered before: pass `proto`, and
        register=False.
        """
        plain = protobuf(message)
        descriptor = message.DESCRIPTOR
        others = [each.name for each in descriptor.file.dependencies if not each.name.startswith("google/")]
        if subject is not None and proto is None and others:
            raise MisusedClient(
                f"{descriptor.file.name} imports {others[0]}: register it, and pass its text as proto"
            )
        text = proto or base64.b64encode(descriptor.file.serialized_pb).decode()
        number = self._number(subject, Draft(text, "PROTOBUF"), register)
        path = _path_of(descriptor)

        def encode(value: Any) -> bytes:
            return _indexes(path) + plain.encode(value)

        def decode(raw: bytes) -> Any:
            self._schemas.of_kind(_id_of(raw), "PROTOBUF")
            written, start = _read_indexes(raw, PREFIX_SIZE)
            if written != path:
                raise ValueError(
                    f"it is message {written} of its schema, and {descriptor.full_name} is {path}"
                )
            return plain.decode(raw[start:])

        return Serializer(_prefixed(number, encode), decode)

    def _number(self, subject: str | None, draft: Draft, register: bool) -> int | None:
        """The number of a schema in a subject; None without a subject."""
        if subject is None:
            return None
        path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if register else "")
        return self._http.get(_Registered, path, method="POST", body=draft.body()).id

    def _latest(self, subject: str, kind: str) -> SchemaVersion:
        found = self._http.get(SchemaVersion, f"/subjects/{quote(subject, safe='')}/versions/latest")
        return checked_kind(found, kind, f"the latest schema of {subject}")


def _text(schema: Any) -> str:
    return schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()


def _id_of(raw: bytes) -> int:
    number = schema_id(raw)
    if number is None:
        raise ValueError("it has no prefix of a schema registry")
    return number


def _no_subject(_: Any) -> bytes:
    raise MisusedClient('a producer needs the subject of its schema, such as "orders-value"')


def _prefixed(number: int | None, encode: Encode) -> Encode:
    if number is None:
        return _no_subject
    prefix = prefix_of(number)
    return lambda value: prefix + encode(value)


def _path_of(descriptor: Any) -> list[int]:
    """The place of a message in its file: its number there, or those of the messages around it first."""
    if descriptor.containing_type is None:
        return [[*descriptor.file.message_types_by_name].index(descriptor.name)]
    around = descriptor.containing_type
    return [*_path_of(around), [each.name for each in around.nested_types].index(descriptor.name)]


def _indexes(path: list[int]) -> bytes:
    """The path as zigzag varints behind its length; the first message of a file is one zero."""
    return b"\x00" if path == [0] else b"".join(_varint(2 * each) for each in (len(path), *path))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= _CONTINUES:
        found.append(number % _CONTINUES | _CONTINUES)
        number //= _CONTINUES
    return bytes((*found, number))


def _read_indexes(raw: bytes, position: int) -> tuple[list[int], int]:
    count, position = _read_varint(raw, position)
    if count == 0:
        return [0], position
    path = []
    for _ in range(count):
        number, position = _read_varint(raw, position)
        path.append(number)
    return path, position


def _read_varint(raw: bytes, position: int) -> tuple[int, int]:
    """A number that zigzag has doubled, and the position behind it."""
    number = shift = 0
    while True:
        if position >= len(raw) or shift > 28:
            raise ValueError("the indexes of its message are cut off or too large")
        byte = raw[position]
        position += 1
        number |= byte % _CONTINUES << shift
        if byte < _CONTINUES:
            return number // 2, position
        shift += 7
