"""OpenTelemetry spans of requests.

A request has one span. The ranges of records that it has written or read are attributes: of the span itself
if there is one range, and of one child span per range otherwise. Attributes are those of the spans of clients
(`messaging.*`). So both can be joined by topic, partition and offset. If the first record that a request has
written or read has a trace context in its headers (`traceparent`), the span of the request has a link to it:
a link, and not a parent, because a batch has records of many traces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.observability.requests import PartitionRange, ServedRequest

__all__ = ["Span", "linked", "spans_of"]

_INTERNAL, _SERVER = 1, 2
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8
#: version, trace id, span id and flags; later versions may have more behind them
_TRACEPARENT: Final = re.compile(
    rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?", re.DOTALL
)

Attributes = Mapping[str, str | int | float | bool]


class Span(NamedTuple):
    trace_id: bytes
    span_id: bytes
    #: empty for a span without a parent
    parent_id: bytes
    name: str
    kind: int
    start_unix_ns: int
    end_unix_ns: int
    attributes: Attributes
    #: trace id and span id of another span, if this one is about the same record
    link: tuple[bytes, bytes] | None = None


def linked(traceparent: bytes | None) -> tuple[bytes, bytes] | None:
    """The trace id and the span id of a header of W3C Trace Context; None if it is not valid."""
    found = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    if found is None or found[1] == b"ff":
        return None
    trace_id, span_id = (bytes.fromhex(part.decode("ascii")) for part in found.group(2, 3))
    return (trace_id, span_id) if any(trace_id) and any(span_id) else None


def spans_of(request: ServedRequest, token: Callable[[int], bytes]) -> list[Span]:
    """The spans of a request. `token` returns that many random bytes."""
    trace_id, span_id = token(_TRACE_BYTES), token(_SPAN_BYTES)
    start, end = request.began_unix_ns, request.began_unix_ns + request.duration_ns
    attributes: dict[str, str | int | float | bool] = {
        "messaging.system": "kafka",
        "messaging.operation.name": request.api,
        "messaging.client.id": request.client_id,
        "network.peer.address": request.peer,
        "penstock.api.version": request.version,
        "penstock.listener": request.listener,
        "penstock.slow": request.is_slow,
    }
    for name, ns in request.stages_ns.items():
        attributes[f"penstock.stage.{name}_ms"] = round(ns / 1e6, 3)
    ranges = [_of_range(found) for found in request.partitions]
    if len(ranges) == 1:
        attributes.update(ranges[0])
    link = linked(request.traceparent)
    spans = [Span(trace_id, span_id, b"", request.api, _SERVER, start, end, attributes, link)]
    if len(ranges) > 1:
        name = f"{request.api} partition"
        spans += [
            Span(trace_id, token(_SPAN_BYTES), span_id, name, _INTERNAL, start, end, found)
            for found in ranges
        ]
    return spans


def _of_range(found: PartitionRange) -> dict[str, str | int | float | bool]:
    attributes: dict[str, str | int | float | bool] = {
        "messaging.destination.name": found.topic,
        "messaging.destination.partition.id": str(found.partition),
        "messaging.kafka.offset": found.base_offset,
    }
    if found.records is not None:
        attributes["messaging.batch.message_count"] = found.records
    return attributes
