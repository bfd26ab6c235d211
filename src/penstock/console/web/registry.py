"""Schemas of messages from a registry with Confluent's REST API.

Serializers write a zero byte and the number of a schema in front of the value. Schemas never change, so each
is fetched once. `prepare` fetches the schemas of a page of messages; `decode` then needs no I/O.

Protobuf is not decoded: it needs a compiler of its schema language. Such values are shown as bytes, with the
number of their schema.
"""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import msgspec

from penstock.console.views.payloads import Decoded
from penstock.records.record import Record

__all__ = ["SchemaRegistry"]

_PREFIX: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 5.0
_ANSWER_MAX: Final = 4 << 20
_SCHEMAS_MAX: Final = 1000


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
        request = HttpRequest(f"{self._url}/schemas/ids/{number}", headers={"Accept": "application/json"})
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as answer:
                found = msgspec.json.decode(answer.read(_ANSWER_MAX))
            kind, text = found.get("schemaType", "AVRO"), found["schema"]
            return number, (kind, _parsed(text) if kind == "AVRO" else None)
        except HTTPError as error:
            with error:
                return number, None if error.code == 404 else _FAILED
        except (msgspec.DecodeError, URLError, OSError, ValueError, KeyError, AttributeError):
            return number, _FAILED


_FAILED: Final = object()


def _number(data: bytes | None) -> int | None:
    if data is None or len(data) <= _PREFIX.size or data[0] != 0:
        return None
    return int(_PREFIX.unpack_from(data)[1])


def _parsed(text: str) -> Any:
    if find_spec("fastavro") is None:
        return None
    from fastavro.schema import parse_schema

    return parse_schema(msgspec.json.decode(text))


def _avro(schema: Any, body: bytes) -> bytes:
    if schema is None:
        raise ValueError("fastavro is missing: pip install 'penstock[avro]'")
    from fastavro import schemaless_reader

    stream = io.BytesIO(body)
    value = schemaless_reader(stream, schema, None)
    if stream.read(1):
        raise ValueError("bytes are left behind the value")
    return msgspec.json.encode(value, enc_hook=str)
