"""Schemas from a registry: Avro and JSON are decoded, what does not fit is shown as it is."""

from __future__ import annotations

import asyncio
import io
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from penstock.console.registry.decoding import SchemaRegistry
from penstock.console.views.payloads import show
from penstock.records.record import Record
from penstock.registry.settings import registry_settings

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "blob", "type": "bytes"}],
}
LINKED = {"type": "record", "name": "Linked", "fields": [{"name": "next", "type": ["null", "Linked"]}]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "/schemas/ids/10": {"schema": json.dumps(LINKED)},
    "/schemas/ids/11": {"schema": json.dumps({"type": "array", "items": "null"})},
    "/schemas/ids/7": {"schema": json.dumps(AVRO)},
    "/schemas/ids/8": {"schema": "{}", "schemaType": "JSON"},
    "/schemas/ids/9": {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"},
}


class _Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.requested.append(self.path)  # type: ignore[attr-defined]
        found = SCHEMAS.get(self.path)
        self.send_response(404 if found is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@contextmanager
def registry() -> Iterator[tuple[str, list[str]]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        server.requested = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", server.requested  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()


def framed(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


def avro(value: dict[str, Any]) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, AVRO, value)
    return stream.getvalue()


def test_values_are_decoded_and_schemas_fetched_once() -> None:
    value = framed(7, avro({"id": 9007199254740993, "blob": b"\xff"}))
    document = framed(8, b'{"n": 9007199254740993}')
    records = [
        Record(0, 0, document, value),
        Record(1, 0, None, value),
        Record(2, 0, framed(404, b"x"), None),
    ]
    with registry() as (url, requested):
        schemas = SchemaRegistry(registry_settings({}, url))
        for _ in range(2):
            asyncio.run(schemas.prepare(records))
        assert sorted(requested) == ["/schemas/ids/404", "/schemas/ids/7", "/schemas/ids/8"]
    shown = show(value, decode=schemas.decode)
    assert (shown["kind"], shown["schema"]) == ("schema", "Avro, schema 7")
    assert '"id": 9007199254740993' in shown["text"]
    assert '"n": 9007199254740993' in show(document, decode=schemas.decode)["text"]


def test_undecodable_payloads_are_shown_as_bytes_or_text() -> None:
    with registry() as (url, _):
        schemas = SchemaRegistry(registry_settings({}, url))
        odd = [framed(7, b"\xff\xff"), framed(9, b"\x08\x01"), framed(8, b"{broken"), b"\x00plain", b"", None]
        asyncio.run(schemas.prepare([Record(n, 0, None, data) for n, data in enumerate(odd)]))
    for data in odd:
        assert show(data, decode=schemas.decode)["kind"] in ("bytes", "text", "empty", "null")


def test_a_registry_that_is_gone_hides_nothing() -> None:
    schemas = SchemaRegistry(registry_settings({}, "http://127.0.0.1:1"))
    value = framed(7, b"x")
    asyncio.run(schemas.prepare([Record(0, 0, None, value)]))
    assert show(value, decode=schemas.decode)["kind"] == "bytes"


def test_a_value_that_is_nested_without_end_is_shown_as_bytes() -> None:
    """fastavro's reader recurses on the stack of C: 50 KB of a linked list ended the process."""
    pytest.importorskip("fastavro")
    nested, short = framed(10, b"\x02" * 50_000 + b"\x00"), framed(10, b"\x02\x02\x00")
    with registry() as (url, _):
        schemas = SchemaRegistry(registry_settings({}, url))
        asyncio.run(schemas.prepare([Record(0, 0, None, nested)]))
        assert schemas.decode(nested) is None
        decoded = schemas.decode(short)
    assert decoded is not None and json.loads(decoded.json) == {"next": {"next": {"next": None}}}


def test_a_list_of_nulls_is_not_built() -> None:
    """An item of no bytes: a list of 2^40 of them has eight bytes."""
    pytest.importorskip("fastavro")
    endless = framed(11, bytes.fromhex("808080808040") + b"\x00")
    with registry() as (url, _):
        schemas = SchemaRegistry(registry_settings({}, url))
        asyncio.run(schemas.prepare([Record(0, 0, None, endless)]))
        assert schemas.decode(endless) is None


def test_a_page_asks_the_registry_for_a_bounded_number_of_schemas() -> None:
    records = [Record(n, 0, None, framed(1000 + n, b"x")) for n in range(200)]
    with registry() as (url, requested):
        asyncio.run(SchemaRegistry(registry_settings({}, url)).prepare(records))
    assert len(requested) == 50
