"""Routes of messages: browse, one message, raw bytes, download, live tail, produce."""

from __future__ import annotations

import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.client.partitioners import murmur2
from penstock.console.kafka.changes import partition_of, produce
from penstock.console.kafka.cluster import Cluster, Refused
from penstock.console.kafka.offsets import list_offsets
from penstock.console.kafka.reading import Browse, Layout, Page, bounds, browse, layout_of, read_one
from penstock.console.kafka.redriving import DEAD_LETTER_HEADERS, redrive
from penstock.console.kafka.tailing import tail
from penstock.console.kafka.workers import in_worker
from penstock.console.registry.decoding import SchemaRegistry
from penstock.console.views.filters import Predicate, parse_filter
from penstock.console.views.payloads import (
    DETAIL_MAX,
    FORMATS,
    PREVIEW_MAX,
    Decoded,
    Decoder,
    exported,
    message_view,
)
from penstock.console.views.unpacking import Found
from penstock.console.web.answers import BadInput, as_json, body_of, offset_of, whole
from penstock.console.web.live import Closing, Events, event_stream
from penstock.console.web.sessions import Sessions
from penstock.records.record import Header, Record

__all__ = ["message_routes"]

_LIMIT: Final = 50
_LIMIT_MAX: Final = 500
#: characters of a value in a live tail: one row shows no more
_TAIL_PREVIEW: Final = 400
_EXPORT_MAX: Final = 10_000
#: seconds of a page for decoding by schemas; later messages are shown as they are
_DECODE_S: Final = 3.0
#: letters that one request sends back
_REDRIVE_MAX: Final = 1_000


class Part(msgspec.Struct):
    """A key or value; `format` is text, base64 or null."""

    text: str = ""
    format: str = "text"

    def data(self, what: str) -> bytes | None:
        if self.format == "null":
            return None
        if self.format == "base64":
            try:
                return b64decode(self.text, validate=True)
            except (Base64Error, ValueError) as error:
                raise BadInput(f"the {what} is not base64: {error}") from error
        if self.format == "json":
            try:
                msgspec.json.decode(self.text)
            except (msgspec.DecodeError, RecursionError) as error:
                raise BadInput(f"the {what} is not JSON: {error}") from error
        return self.text.encode()


class NewHeader(msgspec.Struct):
    name: str
    value: Part


class Resent(msgspec.Struct):
    topic: str


class Redrive(msgspec.Struct):
    """Without `send`, letters are only counted. No topic stands for those that the letters name."""

    to: str | None = None
    send: bool = False


class NewMessage(msgspec.Struct):
    key: Part
    value: Part
    headers: list[NewHeader] = []
    partition: int | None = None


def message_routes(sessions: Sessions, closing: Closing, registry: SchemaRegistry | None) -> list[Route]:
    decode = None if registry is None else registry.decode

    async def prepare(*records: Record) -> None:
        """Fetch schemas before messages are shown."""
        if registry is not None:
            await registry.prepare(records)

    # Longer than other functions because it is a table: one entry per route.
    async def messages(request: Request) -> Response:
        cluster, name = sessions.of(request).cluster, request.path_params["name"]
        layout = await layout_of(cluster, name)
        wanted = await _wanted(cluster, layout, request, whole(request, "limit", _LIMIT, 1, _LIMIT_MAX))
        page = await browse(cluster, layout, wanted)
        form = _format(request)
        await prepare(*(found.record for found in page.found))
        shown = await in_worker(partial(_shown, page.found, PREVIEW_MAX, form, decode))
        return as_json({"messages": shown, **_progress(layout, wanted, page)})

    async def message(request: Request) -> Response:
        partition, record = await _one(sessions, request)
        await prepare(record)
        found, form = Found(partition, record), _format(request)
        (shown,) = await in_worker(partial(_shown, [found], DETAIL_MAX, form, decode))
        return as_json(shown)

    async def raw(request: Request) -> Response:
        partition, record = await _one(sessions, request)
        part = request.query_params.get("part", "value")
        data = record.key if part == "key" else record.value
        file = f"{request.path_params['name']}-{partition}-{record.offset}.{part}"
        return _download(data or b"", file, "application/octet-stream")

    async def export(request: Request) -> Response:
        cluster, name = sessions.of(request).cluster, request.path_params["name"]
        layout = await layout_of(cluster, name)
        limit = whole(request, "limit", _EXPORT_MAX, 1, _EXPORT_MAX)
        page = await browse(cluster, layout, await _wanted(cluster, layout, request, limit))
        return _download(
            await in_worker(partial(_lines, page.found)), f"{name}.ndjson", "application/x-ndjson"
        )

    async def live(request: Request) -> Response:
        cluster, name = sessions.of(request).cluster, request.path_params["name"]
        layout = await layout_of(cluster, name)
        chosen = _partitions(request, layout)
        predicate = _predicate(request)
        return event_stream(closing, _tail(cluster, name, set(chosen), predicate, registry))

    async def send(request: Request) -> Response:
        cluster, new = sessions.of(request).cluster, await body_of(request, NewMessage)
        layout = await layout_of(cluster, request.path_params["name"])
        key, value = new.key.data("key"), new.value.data("value")
        headers = tuple((each.name, each.value.data("header")) for each in new.headers)
        return as_json(await _produced(cluster, layout, new.partition, key, value, headers))

    async def resend(request: Request) -> Response:
        """Send the same bytes again, without the headers that a dead letter has of its own."""
        wanted = await body_of(request, Resent)
        _, record = await _one(sessions, request)
        cluster = sessions.of(request).cluster
        layout = await layout_of(cluster, wanted.topic)
        headers = tuple(each for each in record.headers if not each[0].startswith(DEAD_LETTER_HEADERS))
        return as_json(await _produced(cluster, layout, None, record.key, record.value, headers))

    async def send_back(request: Request) -> Response:
        """Dead letters that the query finds, to the topics that they came from."""
        wanted = await body_of(request, Redrive)
        cluster, name = sessions.of(request).cluster, request.path_params["name"]
        layout = await layout_of(cluster, name)
        page = await browse(cluster, layout, await _wanted(cluster, layout, request, _REDRIVE_MAX))
        done = await redrive(cluster, page.found, wanted.to, send=wanted.send)
        return as_json({**done, "limited": page.limited or len(page.found) >= _REDRIVE_MAX})

    base = "/api/topics/{name}/messages"
    return [
        Route("/api/topics/{name}/redrive", send_back, methods=["POST"]),
        Route(base, messages),
        Route(base, send, methods=["POST"]),
        Route(base + "/{partition:int}/{offset}", message),
        Route(base + "/{partition:int}/{offset}/raw", raw),
        Route(base + "/{partition:int}/{offset}/resend", resend, methods=["POST"]),
        Route("/api/topics/{name}/export", export),
        Route("/api/topics/{name}/tail", live),
    ]


async def _produced(
    cluster: Cluster,
    layout: Layout,
    chosen: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[Header, ...],
) -> dict[str, Any]:
    now_ms = time.time_ns() // 1_000_000
    partition = partition_of(layout, key, chosen, now_ms)
    offset = await produce(cluster, layout, partition, now_ms, key, value, headers)
    return {"partition": partition, "offset": str(offset)}


async def _tail(
    cluster: Cluster,
    topic: str,
    partitions: set[int],
    predicate: Predicate | None,
    registry: SchemaRegistry | None,
) -> Events:
    decode = None if registry is None else registry.decode
    caught_up = tail(cluster, topic, partitions, predicate)
    try:
        async for caught in caught_up:
            if registry is not None:
                await registry.prepare(found.record for found in caught.found)
            shown = await in_worker(partial(_shown, caught.found, _TAIL_PREVIEW, "auto", decode))
            yield "messages", {"messages": shown, "skipped": caught.skipped, "errors": caught.errors}
    finally:
        await caught_up.aclose()


def _shown(found: Iterable[Found], limit: int, form: str, decode: Decoder | None) -> list[dict[str, Any]]:
    """Messages for a page, in a worker thread."""
    until = time.monotonic() + _DECODE_S

    def in_time(data: bytes) -> Decoded | None:
        return decode(data) if decode is not None and time.monotonic() < until else None

    return [message_view(*each, limit=limit, wanted=form, decode=decode and in_time) for each in found]


def _lines(found: Iterable[Found]) -> bytes:
    return b"\n".join([*(msgspec.json.encode(exported(*each)) for each in found), b""])


async def _one(sessions: Sessions, request: Request) -> tuple[int, Record]:
    cluster, partition = sessions.of(request).cluster, request.path_params["partition"]
    layout = await layout_of(cluster, request.path_params["name"])
    return partition, await read_one(cluster, layout, partition, offset_of(request.path_params["offset"]))


def _format(request: Request) -> str:
    form = request.query_params.get("format", "auto")
    if form not in FORMATS:
        raise BadInput(f"format={form!r} is not one of {', '.join(FORMATS)}")
    return form


def _predicate(request: Request) -> Predicate | None:
    """The filter and the key of a request as one predicate."""
    found = parse_filter(request.query_params.get("filter", ""))
    key = request.query_params.get("key")
    if not key:
        return found
    wanted = key.encode()
    if found is None:
        return lambda _, record: record.key == wanted
    return lambda partition, record: record.key == wanted and found(partition, record)


def _partitions(request: Request, layout: Layout) -> list[int]:
    """The chosen partition; of a key without one, the partition of its hash; else all."""
    text = request.query_params.get("partition", "")
    if text:
        number = whole(request, "partition", 0, 0, 1 << 31)
        if number >= layout.partitions:
            raise BadInput(f"{layout.topic} has the partitions 0 to {layout.partitions - 1}")
        return [number]
    key = request.query_params.get("key")
    if key and request.query_params.get("by_hash", "1") == "1":
        return [murmur2(key.encode()) % layout.partitions]
    return list(range(layout.partitions))


async def _wanted(cluster: Cluster, layout: Layout, request: Request, limit: int) -> Browse:
    """Where to read: from the newest backwards, from the oldest, from an offset or a time forwards."""
    stable = request.query_params.get("isolation", "committed") == "committed"
    chosen = _partitions(request, layout)
    starts, ends = await bounds(cluster, layout, chosen, stable=stable)
    origin = request.query_params.get("from", "newest")
    backwards = request.query_params.get("direction", "older" if origin == "newest" else "newer") == "older"
    cursor = request.query_params.get("cursor")
    if cursor:
        positions = {p: o for p, o in _cursor(cursor).items() if p in chosen}
    elif origin == "newest":
        positions = dict(ends)
    elif origin == "oldest":
        positions = dict(starts)
    elif origin == "offset":
        offset = offset_of(request.query_params.get("offset", ""))
        positions = {p: max(starts[p], min(offset, ends[p])) for p in ends if p in starts}
    elif origin == "time":
        positions = await _at_time(cluster, layout, ends, request)
    else:
        raise BadInput(f"from={origin!r} is not one of newest, oldest, offset, time")
    return Browse(positions, starts, ends, limit, backwards, stable, _predicate(request))


def _cursor(text: str) -> dict[int, int]:
    try:
        pairs = [pair.split(":") for pair in text.split(",")]
        return {int(partition): offset_of(offset) for partition, offset in pairs}
    except (ValueError, BadInput) as error:
        raise BadInput("the cursor is not one that this console has given") from error


async def _at_time(
    cluster: Cluster, layout: Layout, ends: dict[int, int], request: Request
) -> dict[int, int]:
    """The first offset from a time on; the end of a partition without a record that late."""
    when = offset_of(request.query_params.get("time", ""))
    leaders = {(layout.topic, p): layout.leaders[p] for p in ends}
    found = await list_offsets(cluster, leaders, when)
    return {p: found.get((layout.topic, p), end) for p, end in ends.items()}


def _progress(layout: Layout, wanted: Browse, page: Page) -> dict[str, Any]:
    lost = [p for p in range(layout.partitions) if p not in layout.leaders]
    edges = wanted.starts if wanted.backwards else wanted.ends
    at_end = all(position == edges.get(p, position) for p, position in page.positions.items())
    return {
        "partitions": layout.partitions,
        "cursor": ",".join(f"{p}:{offset}" for p, offset in sorted(page.positions.items())),
        "direction": "older" if wanted.backwards else "newer",
        "complete": at_end,
        "scanned": page.scanned,
        "scanned_bytes": page.scanned_bytes,
        "limited": page.limited,
        "oversized": len(page.oversized),
        "bounds": {str(p): [str(wanted.starts.get(p, 0)), str(end)] for p, end in wanted.ends.items()},
        "missing": {
            **{str(p): "no leader" for p in lost},
            **{str(p): why for p, why in page.missing.items()},
        },
    }


def _download(data: bytes, file: str, kind: str) -> Response:
    """A download: a browser must never show it, because it may be a page with scripts."""
    if not file:
        raise Refused("INVALID_REQUEST", "a download needs a name")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file, safe='')}",
        "Cache-Control": "no-store",
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    return Response(data, media_type=kind, headers=headers)
