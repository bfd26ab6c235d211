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

from penstock.console.views.payloads import show
from penstock.console.web.registry import SchemaRegistry
from penstock.records.record import Record

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "blob", "type": "bytes"}],
}
SCHEMAS: dict[str, dict[str, Any]] = {
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
        schemas = SchemaRegistry(url)
        for _ in range(2):
            asyncio.run(schemas.prepare(records))
        assert sorted(requested) == ["/schemas/ids/404", "/schemas/ids/7", "/schemas/ids/8"]
    shown = show(value, decode=schemas.decode)
    assert (shown["kind"], shown["schema"]) == ("schema", "Avro, schema 7")
    assert '"id": 9007199254740993' in shown["text"]
    assert '"n": 9007199254740993' in show(document, decode=schemas.decode)["text"]


def test_what_does_not_fit_is_shown_as_it_is() -> None:
    with registry() as (url, _):
        schemas = SchemaRegistry(url)
        odd = [framed(7, b"\xff\xff"), framed(9, b"\x08\x01"), framed(8, b"{broken"), b"\x00plain", b"", None]
        asyncio.run(schemas.prepare([Record(n, 0, None, data) for n, data in enumerate(odd)]))
    for data in odd:
        assert show(data, decode=schemas.decode)["kind"] in ("bytes", "text", "empty", "null")


def test_a_registry_that_is_gone_hides_nothing() -> None:
    schemas = SchemaRegistry("http://127.0.0.1:1")
    value = framed(7, b"x")
    asyncio.run(schemas.prepare([Record(0, 0, None, value)]))
    assert show(value, decode=schemas.decode)["kind"] == "bytes"


def test_a_registry_with_an_invalid_address_hides_nothing() -> None:
    schemas = SchemaRegistry("http://127.0.0.1:port")
    value = framed(7, b"x")
    asyncio.run(schemas.prepare([Record(0, 0, None, value)]))
    assert show(value, decode=schemas.decode)["kind"] == "bytes"
