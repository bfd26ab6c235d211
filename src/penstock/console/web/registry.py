"""Schemas of messages from a registry with Confluent's REST API.

Serializers write a zero byte and the number of a schema in front of the value. Schemas never change, so each
is fetched once. `prepare` fetches the schemas of a page of messages; `decode` then needs no I/O.

Schemas of Protobuf are parsed here, not compiled: no code is generated or run. A schema may refer to others,
which are fetched with it.
"""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import Iterable
from http.client import HTTPException
from importlib.util import find_spec
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import msgspec

from penstock.console.views.payloads import Decoded
from penstock.console.views.protobuf import ProtobufSchema
from penstock.console.views.protobuf_schema import InvalidSchema
from penstock.records.record import Record

__all__ = ["SchemaRegistry"]

_PREFIX: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 5.0
_ANSWER_MAX: Final = 4 << 20
_SCHEMAS_MAX: Final = 1000
_REFERENCES_MAX: Final = 50


class SchemaRegistry:
    """Schemas by their number. Owned by the thread of the event loop."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        #: (type, schema); None for one that the registry does not have
        self._known: dict[int, tuple[str, Any] | None] = {}

    async def prepare(self, records: Iterable[Record]) -> None:
        """Fetch the schemas that keys and values of these records name. A registry that fails is ignored."""
        parts = [part for record in records for part in (record.key, record.value)]
        wanted = {number for part in parts if (number := _number(part)) is not None} - self._known.keys()
        if len(self._known) + len(wanted) > _SCHEMAS_MAX:
            self._known.clear()
        found = await asyncio.gather(*(asyncio.to_thread(self._fetch, number) for number in sorted(wanted)))
        for number, schema in found:
            if schema is not _FAILED:
                self._known[number] = schema

    def decode(self, data: bytes) -> Decoded | None:
        """The value by its schema; None if it has none, or does not fit it."""
        number = _number(data)
        known = None if number is None else self._known.get(number)
        if known is None:
            return None
        kind, schema = known
        body = data[_PREFIX.size :]
        try:
            if kind == "AVRO":
                return Decoded(f"Avro, schema {number}", _avro(schema, body))
            if kind == "PROTOBUF":
                name, value = schema.decode(body)
                return Decoded(f"Protobuf {name}, schema {number}", msgspec.json.encode(value))
            if kind == "JSON":
                return Decoded(f"JSON Schema {number}", msgspec.json.format(body, indent=0))
        except (
            msgspec.DecodeError,
            ValueError,
            EOFError,
            IndexError,
            KeyError,
            TypeError,
            OverflowError,
            struct.error,
        ):
            return None
        return None

    def _fetch(self, number: int) -> tuple[int, Any]:
        try:
            found = self._get(f"/schemas/ids/{number}")
            kind = found.get("schemaType") or "AVRO"
            return number, (kind, _parsed(kind, found["schema"], self._referenced(found)))
        except HTTPError as error:
            with error:
                return number, None if error.code == 404 else _FAILED
        except (InvalidSchema, RecursionError):
            # A schema never changes, so there is no use in fetching it again.
            return number, None
        except (
            msgspec.DecodeError,
            URLError,
            HTTPException,
            OSError,
            ValueError,
            KeyError,
            AttributeError,
        ):
            return number, _FAILED

    def _referenced(self, schema: dict[str, Any]) -> list[str]:
        """The texts of the schemas that a schema refers to, each after those that it refers to itself."""
        found: dict[tuple[str, int], str] = {}

        def visit(each: dict[str, Any], depth: int) -> None:
            for reference in each.get("references") or ():
                key = (reference["subject"], reference["version"])
                if key in found:
                    continue
                if len(found) >= _REFERENCES_MAX or depth > _REFERENCES_MAX:
                    raise InvalidSchema(f"the schema refers to more than {_REFERENCES_MAX} others")
                other = self._get(f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}")
                visit(other, depth + 1)
                found[key] = other["schema"]

        visit(schema, 0)
        return list(found.values())

    def _get(self, path: str) -> dict[str, Any]:
        request = HttpRequest(f"{self._url}{path}", headers={"Accept": "application/json"})
        with urlopen(request, timeout=_TIMEOUT_S) as answer:
            found: dict[str, Any] = msgspec.json.decode(answer.read(_ANSWER_MAX), type=dict[str, Any])
        return found


_FAILED: Final = object()


def _number(data: bytes | None) -> int | None:
    if data is None or len(data) <= _PREFIX.size or data[0] != 0:
        return None
    return int(_PREFIX.unpack_from(data)[1])


def _parsed(kind: str, text: str, references: list[str]) -> Any:
    if kind == "PROTOBUF":
        return ProtobufSchema(text, references)
    if kind != "AVRO" or find_spec("fastavro") is None:
        return None
    from fastavro.schema import SchemaParseException, parse_schema

    named: dict[str, Any] = {}
    try:
        for each in references:
            parse_schema(msgspec.json.decode(each), named_schemas=named)
        return parse_schema(msgspec.json.decode(text), named_schemas=named)
    except SchemaParseException as error:
        raise InvalidSchema(str(error)) from error


def _avro(schema: Any, body: bytes) -> bytes:
    if schema is None:
        raise ValueError("fastavro is missing: pip install 'penstock[avro]'")
    from fastavro import schemaless_reader

    stream = io.BytesIO(body)
    value = schemaless_reader(stream, schema, None)
    if stream.read(1):
        raise ValueError("bytes are left behind the value")
    return msgspec.json.encode(value, enc_hook=str)
