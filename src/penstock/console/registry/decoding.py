"""Messages by the schemas of a registry.

Serializers write a zero byte and the number of a schema in front of the value. Schemas never change, so each
is fetched once; one that the registry does not have is asked for again after a minute. `prepare` fetches the
schemas of a page of messages; `decode` then needs no I/O and runs in a worker thread.

Any bytes can begin like this, so a page fetches at most `_FETCHES_MAX` schemas, in threads that nothing else
uses, and waits for `_PAGE_S`.

Schemas of Protobuf are parsed here, not compiled: no code is generated or run. A schema may refer to others,
which are fetched with it.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, Final

import msgspec

from penstock.console.views.json_text import is_json
from penstock.console.views.payloads import Decoded
from penstock.model.installation import pip_install
from penstock.records.record import Record
from penstock.registry.avro_check import check_avro
from penstock.registry.http import RegistryHttp, RegistryRefused, RegistryUnreachable
from penstock.registry.prefix import PREFIX_SIZE, schema_id
from penstock.registry.protobuf import ProtobufSchema
from penstock.registry.schemas import (
    MISFITS,
    AvroSchema,
    InvalidSchema,
    SchemaVersion,
    parsed_avro,
    referenced,
)
from penstock.registry.settings import RegistrySettings

__all__ = ["SchemaRegistry"]

_SCHEMAS_MAX: Final = 1000
#: schemas that one page fetches, seconds that it waits for all of them, and for each
_FETCHES_MAX: Final = 50
_PAGE_S: Final = 10.0
_FETCH_S: Final = 5.0
_THREADS: Final = 4
#: how long a schema counts as missing
_MISSING_S: Final = 60.0


class SchemaRegistry:
    """Schemas by their number. Owned by the thread of the event loop; `decode` may run in any thread."""

    def __init__(self, settings: RegistrySettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._http = RegistryHttp(settings, timeout_s=_FETCH_S)
        self._clock = clock
        #: (type, schema); None for one that cannot be used
        self._known: dict[int, tuple[str, Any] | None] = {}
        #: when the registry did not have a schema
        self._missing: dict[int, float] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="console-schemas")

    async def prepare(self, records: Iterable[Record]) -> None:
        """Fetch the schemas that keys and values of these records name. A registry that fails is ignored."""
        parts = [part for record in records for part in (record.key, record.value)]
        numbers = {number for part in parts if (number := _number(part)) is not None} - self._known.keys()
        since = self._clock() - _MISSING_S
        wanted = sorted(n for n in numbers if self._missing.get(n, since) <= since)[:_FETCHES_MAX]
        if not wanted:
            return
        if len(self._known) + len(self._missing) + len(wanted) > _SCHEMAS_MAX:
            self._known.clear()
            self._missing.clear()
        loop = asyncio.get_running_loop()
        fetches = [loop.run_in_executor(self._threads, self._fetch, number) for number in wanted]
        done, late = await asyncio.wait(fetches, timeout=_PAGE_S)
        for fetch in late:
            fetch.cancel()
        for number, schema in (fetch.result() for fetch in done):
            if schema is _NOT_THERE:
                self._missing[number] = self._clock()
            elif schema is not _FAILED:
                self._known[number] = schema
                self._missing.pop(number, None)

    def forget_missing(self) -> None:
        """Ask for missing schemas again: one of them may have been registered."""
        self._missing.clear()

    def decode(self, data: bytes) -> Decoded | None:
        """The value by its schema; None if it has none, or does not fit it."""
        number = _number(data)
        known = None if number is None else self._known.get(number)
        if known is None:
            return None
        kind, schema = known
        body = data[PREFIX_SIZE:]
        try:
            if kind == "AVRO":
                return Decoded(f"Avro, schema {number}", _avro(schema, body), number)
            if kind == "PROTOBUF":
                name, value = schema.decode(body)
                return Decoded(f"Protobuf {name}, schema {number}", msgspec.json.encode(value), number)
            if kind == "JSON":
                return Decoded(f"JSON Schema {number}", body, number) if is_json(body) else None
        except MISFITS:
            return None
        return None

    def _fetch(self, number: int) -> tuple[int, Any]:
        try:
            found = self._http.get(SchemaVersion, f"/schemas/ids/{number}")
            return number, (found.kind, _parsed(found.kind, found.schema, referenced(self._http, found)))
        except RegistryRefused as error:
            return number, _NOT_THERE if error.status == 404 else _FAILED
        except (InvalidSchema, RecursionError):
            # A schema never changes, so there is no use in fetching it again.
            return number, None
        except (msgspec.DecodeError, RegistryUnreachable, ValueError, KeyError, AttributeError):
            return number, _FAILED


_FAILED: Final = object()
_NOT_THERE: Final = object()


def _number(data: bytes | None) -> int | None:
    return None if data is None else schema_id(data)


def _parsed(kind: str, text: str, references: list[str]) -> Any:
    if kind == "PROTOBUF":
        return ProtobufSchema(text, references)
    if kind != "AVRO" or find_spec("fastavro") is None:
        return None
    return parsed_avro(text, references)


def _avro(schema: AvroSchema | None, body: bytes) -> bytes:
    if schema is None:
        raise ValueError(f"fastavro is missing: {pip_install('avro')}")
    from fastavro import schemaless_reader

    check_avro(schema.parsed, schema.named, body)
    stream = io.BytesIO(body)
    value = schemaless_reader(stream, schema.parsed, None)
    if stream.read(1):
        raise ValueError("bytes are left behind the value")
    return msgspec.json.encode(value, enc_hook=str)
