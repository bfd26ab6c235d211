"""Two codecs that are not ours, behind one face: kio's, and kafka-python's.

Both take our message apart by its table and put it together in their classes; what they decode comes back as
a message of ours. So nothing here knows any API, and equality is equality of our messages.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import inspect
import io
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import kio.index
import kio.serial
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas.fields.codecs import BitField
from kio.schema.errors import ErrorCode as KioErrorCode

from penstock.wire.api import Api
from penstock.wire.layout import fields_in
from penstock.wire.schema import OWN_TAGS, Field, Struct

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def _bare(value: Any) -> Any:
    """A simple value of an oracle's richer type as the table's kind of value."""
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, set):
        return int.from_bytes(sum(1 << bit for bit in value).to_bytes(4, "big"), "big", signed=True)
    return value


def _ours(cls: type[Struct], version: int, theirs: Any) -> Struct:
    """An oracle's object as a message of ours; attributes go by the same names, or by shorter ones."""
    sequence, tagged = fields_in(cls, version)
    values = {}
    for field in sequence + [each for each in tagged if (each.tag or 0) < OWN_TAGS]:
        name = next(name for name in _their_names(field.name) if hasattr(theirs, name))
        value = _our_value(field, version, getattr(theirs, name))
        if field.tag is not None and field.kind == "struct" and value == field.of():
            value = None
        values[field.name] = value
    return cls(**values)


def _their_names(name: str) -> tuple[str, ...]:
    return (
        name,
        name.removesuffix("_ms"),
        name.removeprefix("topic_").removeprefix("cluster_"),
        name.replace("kraft", "k_raft"),
        name.replace("_2pc", "2_pc"),
    )


def _our_value(field: Field, version: int, value: Any) -> Any:
    if value is None:
        return _null(field)
    if field.kind == "array":
        if isinstance(field.of, type):
            return [_ours(field.of, version, item) for item in value]
        return [_null(field.of) if item is None else _bare(item) for item in value]
    if field.kind == "struct":
        return _ours(field.of, version, value)
    return _bare(value)


def _null(field: Field) -> Any:
    """What oracles show as None: the uuid of zeros, kio the timestamp -1, kafka-python unset operations."""
    return {"uuid": bytes(16), "int64": -1, "int32": -(2**31)}.get(field.kind)


class Kio:
    """kio: dataclasses per version, generated from Kafka's own schemas."""

    def schema(self, api: Api[Any, Any], direction: str, version: int) -> Any:
        load = kio.index.load_request_schema if direction == "request" else kio.index.load_response_schema
        try:
            return load(api.key, version)
        except kio.index.KioIndexError:
            return None

    def encode(self, schema: Any, version: int, message: Struct) -> bytes:
        buffer = io.BytesIO()
        kio.serial.entity_writer(schema)(buffer, self._theirs(schema, message))
        return buffer.getvalue()

    def decode(self, schema: Any, version: int, cls: type[Struct], data: bytes) -> Struct:
        theirs, size = kio.serial.entity_reader(schema)(data, 0)
        assert size == len(data)
        return _ours(cls, version, theirs)

    def _theirs(self, schema: Any, message: Struct) -> Any:
        values = {}
        for field in dataclasses.fields(schema):
            name = next(name for name in self._our_names(field.name) if hasattr(message, name))
            value = getattr(message, name)
            if value is None and "tag" in field.metadata and dataclasses.is_dataclass(field.type):
                # Absent: what they call the default, and leave out.
                value = next(ours.of() for ours in type(message).fields if ours.name == name)
            values[field.name] = self._their_value(field, value)
        return schema(**values)

    def _our_names(self, name: str) -> tuple[str, ...]:
        return (
            name,
            name + "_ms",
            name.replace("k_raft", "kraft"),
            name.removesuffix("_"),
            name.replace("2_pc", "_2pc"),
        )

    def _their_value(self, field: Any, value: Any) -> Any:
        nested = next((t for t in _types_within(field.type) if dataclasses.is_dataclass(t)), None)
        if isinstance(value, list):
            return tuple(
                self._theirs(nested, item) if nested else self._simple(field, item) for item in value
            )
        if nested is not None and value is not None:
            return self._theirs(nested, value)
        return self._simple(field, value)

    def _simple(self, field: Any, value: Any) -> Any:
        kind = field.metadata.get("kafka_type")
        if value is None:
            return None
        if kind == "error_code":
            return KioErrorCode(value)
        if kind in ("timedelta_i32", "timedelta_i64"):
            return value * _MILLISECOND
        if kind == "datetime_i64":
            return None if value == -1 else _EPOCH + value * _MILLISECOND
        if kind == "uuid":
            return None if value == bytes(16) else uuid.UUID(bytes=value)
        return value


def _types_within(annotation: Any) -> Iterator[Any]:
    yield annotation
    for argument in typing.get_args(annotation):
        yield from _types_within(argument)


class KafkaPython:
    """kafka-python: classes driven by its own copies of the schemas, its own encoder and decoder."""

    def __init__(self) -> None:
        self._classes: dict[str, Any] = {}
        for package in ("admin", "consumer", "metadata", "producer"):
            module = importlib.import_module(f"kafka.protocol.{package}")
            self._classes |= {name: cls for name, cls in vars(module).items() if inspect.isclass(cls)}

    def schema(self, api: Api[Any, Any], direction: str, version: int) -> Any:
        cls = self._classes.get((api.request if direction == "request" else api.response).__name__)
        return cls if cls is not None and version <= cls.valid_versions[1] else None

    def encode(self, schema: Any, version: int, message: Struct) -> bytes:
        return bytes(self._theirs(schema, version, message).encode(version=version))

    def decode(self, schema: Any, version: int, cls: type[Struct], data: bytes) -> Struct:
        # Not the class's own `decode`: that of ApiVersions takes whatever carries an error for version 0.
        return _ours(cls, version, ApiMessage.decode.__func__(schema, data, version=version))

    def _theirs(self, schema: Any, version: int, message: Struct) -> Any:
        sequence, tagged = fields_in(type(message), version)
        values = {}
        # A list that is absent is empty, whatever its default.
        present = [f for f in tagged if getattr(message, f.name) not in (f.default, [])]
        for field in sequence + present:
            name = next(name for name in _their_names(field.name) if name in schema.fields)
            values[name] = self._their_value(
                schema.fields[name], field, version, getattr(message, field.name)
            )
        return schema(version=version, **values)

    def _their_value(self, schema: Any, field: Field, version: int, value: Any) -> Any:
        """`schema` is kafka-python's own table of the field."""
        if field.kind == "uuid":
            return uuid.UUID(bytes=value)
        if getattr(schema, "_type", None) is BitField:
            return {bit for bit in range(32) if value >> bit & 1}
        if isinstance(value, list):
            if isinstance(field.of, type):
                return [self._theirs(schema.data_class, version, item) for item in value]
            return [uuid.UUID(bytes=v) if field.of.kind == "uuid" else v for v in value]
        if isinstance(value, Struct):
            return self._theirs(schema.data_class, version, value)
        return value
