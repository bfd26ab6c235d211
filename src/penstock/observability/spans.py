"""OpenTelemetry spans of requests.

A request has one span. The ranges of records that it has written or read are attributes: of the span itself
if there is one range, and of one child span per range otherwise. Attributes are those of the spans of clients
(`messaging.*`). So both can be joined by topic, partition and offset: brokers do not read the trace context
in the headers of records, which batches may have compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.observability.requests import PartitionRange, ServedRequest

__all__ = ["Span", "spans_of"]

_INTERNAL, _SERVER = 1, 2
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8

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
    spans = [Span(trace_id, span_id, b"", request.api, _SERVER, start, end, attributes)]
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
