"""Bytes of messages as values of Python: JSON, or Avro, JSON and Protobuf by the schemas of a registry.

A decoder is sent to executors: it opens its connection to the registry there, and fetches each schema once.
Schemas that a registry does not have, and bytes that do not fit theirs, make a message `Undecodable`. A
registry that does not respond, or a library that is missing, is an error of the whole batch, which is run
again.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa

from penstock.model.errors import PenstockError
from penstock.model.installation import pip_install
from penstock.registry.avro_check import check_avro, needs_check
from penstock.registry.http import RegistryHttp, RegistryRefused
from penstock.registry.prefix import PREFIX_SIZE, schema_id
from penstock.registry.schema_cache import MissingSchema, SchemaCache
from penstock.registry.schemas import (
    MISFITS,
    AvroSchema,
    InvalidSchema,
    SchemaVersion,
    parsed_avro,
    referenced,
)
from penstock.registry.settings import RegistrySettings
from penstock.values.avro_types import avro_columns
from penstock.values.json_schema_types import NoColumns, json_schema_columns
from penstock.values.protobuf_types import protobuf_columns

if TYPE_CHECKING:
    from penstock.registry.protobuf import ProtobufSchema

__all__ = [
    "Decoded",
    "Decoder",
    "JsonDecoder",
    "LibraryMissing",
    "RegistryDecoder",
    "Undecodable",
    "columns_of",
]


class Undecodable(ValueError):
    """Bytes that are no value; the message says why."""


class LibraryMissing(PenstockError):
    """A library that a schema needs is not installed: no fault of a message."""


class Decoded(NamedTuple):
    """A value, and the columns of its schema; None without a schema."""

    value: Any
    columns: Any | None = None


class Decoder(Protocol):
    """Bytes to values. Raises Undecodable."""

    def decode(self, data: bytes) -> Decoded: ...


class JsonDecoder:
    """JSON without a schema."""

    def __init__(self) -> None:
        self._json = msgspec.json.Decoder()

    def __reduce__(self) -> tuple[type[JsonDecoder], tuple[()]]:
        return JsonDecoder, ()

    def decode(self, data: bytes) -> Decoded:
        try:
            return Decoded(self._json.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Undecodable(f"the value is not JSON: {error}") from error


class _Schema(NamedTuple):
    """A schema that was fetched: from bytes behind the prefix to a value and its columns."""

    decode: Callable[[bytes], Decoded]


class RegistryDecoder:
    """Messages with the prefix of a registry, each by the schema of its writer."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._http = RegistryHttp(settings)
        self._schemas = SchemaCache(self._http)
        self._parsed: dict[int, _Schema] = {}

    def __reduce__(self) -> tuple[type[RegistryDecoder], tuple[RegistrySettings]]:
        return RegistryDecoder, (self._settings,)

    def decode(self, data: bytes) -> Decoded:
        """The value. Blocks for the first one of a schema.

        RegistryUnreachable if it cannot be fetched, LibraryMissing.
        """
        number = schema_id(data)
        if number is None:
            raise Undecodable("the value has no prefix of a schema registry")
        schema = self._parsed.get(number)
        if schema is None:
            schema = self._parsed[number] = self._fetched(number)
        try:
            return schema.decode(data[PREFIX_SIZE:])
        except Undecodable:
            raise
        except MISFITS as error:
            raise Undecodable(f"the value does not fit schema {number}: {error}") from error

    def _fetched(self, number: int) -> _Schema:
        try:
            found = self._schemas.find(number)
            return _Schema(_decoding(found, referenced(self._http, found)))
        except RegistryRefused as error:
            if error.status != 404:
                raise
            raise Undecodable(f"the schema registry has no schema {number}") from error
        except MissingSchema as error:
            raise Undecodable(str(error)) from error
        except (InvalidSchema, RecursionError, KeyError, ValueError) as error:
            raise Undecodable(f"schema {number} cannot be used: {error}") from error


def columns_of(schema: SchemaVersion, references: list[str]) -> Any | None:
    """The columns of a schema's values; None if they are no objects. Of Protobuf, of its first message."""
    if schema.kind == "AVRO":
        avro = _parsed_avro(schema, references)
        return avro_columns(avro.parsed, avro.named)
    if schema.kind == "JSON":
        return _json_columns(schema.schema)
    protobuf = _parsed_protobuf(schema, references)
    return protobuf_columns(protobuf.file.top[0], protobuf.file)


def _json_columns(text: str) -> Any | None:
    try:
        return json_schema_columns(msgspec.json.decode(text))
    except NoColumns:
        return None


def _decoding(schema: SchemaVersion, references: list[str]) -> Callable[[bytes], Decoded]:
    if schema.kind == "AVRO":
        return _avro(schema, references)
    if schema.kind == "PROTOBUF":
        return _protobuf(schema, references)
    if schema.kind == "JSON":
        columns, decoder = _json_columns(schema.schema), msgspec.json.Decoder()
        return lambda body: Decoded(decoder.decode(body), columns)
    raise InvalidSchema(f"its type is {schema.kind}")


def _parsed_avro(schema: SchemaVersion, references: list[str]) -> AvroSchema:
    try:
        return parsed_avro(schema.schema, references)
    except ImportError as error:
        raise LibraryMissing(f"fastavro is missing: {pip_install('avro')}") from error


def _parsed_protobuf(schema: SchemaVersion, references: list[str]) -> ProtobufSchema:
    try:
        from penstock.registry.protobuf import ProtobufSchema
    except ImportError as error:
        raise LibraryMissing(f"protobuf is missing: {pip_install('protobuf')}") from error
    return ProtobufSchema(schema.schema, references)


def _avro(schema: SchemaVersion, references: list[str]) -> Callable[[bytes], Decoded]:
    avro = _parsed_avro(schema, references)
    from fastavro import schemaless_reader

    columns = avro_columns(avro.parsed, avro.named)
    is_checked = needs_check(avro.parsed, avro.named)

    def decode(body: bytes) -> Decoded:
        if is_checked:
            check_avro(avro.parsed, avro.named, body)
        stream = io.BytesIO(body)
        value = schemaless_reader(stream, avro.parsed, None)
        if stream.tell() != len(body):
            raise Undecodable("bytes are left behind the value")
        return Decoded(value, columns)

    return decode


def _protobuf(schema: SchemaVersion, references: list[str]) -> Callable[[bytes], Decoded]:
    protobuf = _parsed_protobuf(schema, references)
    by_message: dict[str, Any] = {}

    def decode(body: bytes) -> Decoded:
        message, _ = protobuf.indexed(body)
        columns = by_message.get(message.name)
        if columns is None:
            columns = by_message[message.name] = protobuf_columns(message, protobuf.file)
        value = protobuf.decode_plain(body)
        return Decoded(value, columns if pa.types.is_struct(columns) else None)

    return decode
