"""OpenTelemetry's messages (OTLP 1): spans out, metrics of clients in and on.

A client's metrics are passed on as it has sent them, with attributes that name the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from struct import Struct
from typing import Final, NamedTuple

from penstock.observability.protobuf import Field, fields, fixed64, message, text, varint
from penstock.observability.spans import Span

__all__ = ["ClientMetric", "client_metrics", "encode_spans", "with_resource"]

_SCOPE: Final = "penstock"
_double: Final = Struct("<d").unpack
_bits: Final = Struct("<Q").pack
_signed: Final = Struct("<q").unpack
_DELTA: Final = 1
#: fields of `Metric` with number data points
_GAUGE, _SUM = 5, 7


def _value(value: str | int | float | bool) -> bytes:
    if isinstance(value, bool):
        return varint(2, int(value))
    if isinstance(value, int):
        return varint(3, value)
    if isinstance(value, float):
        (bits,) = Struct("<Q").unpack(Struct("<d").pack(value))
        return fixed64(4, bits)
    return text(1, value)


def _attributes(number: int, attributes: Mapping[str, str | int | float | bool]) -> bytes:
    return b"".join(
        message(number, text(1, name) + message(2, _value(value))) for name, value in attributes.items()
    )


def _span(span: Span) -> bytes:
    parts = [message(1, span.trace_id), message(2, span.span_id)]
    if span.parent_id:
        parts.append(message(4, span.parent_id))
    parts += (
        text(5, span.name),
        varint(6, span.kind),
        fixed64(7, span.start_unix_ns),
        fixed64(8, span.end_unix_ns),
        _attributes(9, span.attributes),
    )
    return b"".join(parts)


def encode_spans(resource: Mapping[str, str | int | float | bool], spans: Sequence[Span]) -> bytes:
    """An ExportTraceServiceRequest with the spans of one process."""
    scope = message(1, text(1, _SCOPE)) + b"".join(message(2, _span(span)) for span in spans)
    return message(1, message(1, _attributes(1, resource)) + message(2, scope))


def with_resource(metrics: bytes, attributes: Mapping[str, str | int | float | bool]) -> bytes:
    """The metrics of a client with attributes of their resource: an ExportMetricsServiceRequest."""
    added = _attributes(1, attributes)
    out = []
    for top in fields(metrics):
        if top.number == 1:
            inner = list(fields(top.data))
            resource = b"".join(field.data for field in inner if field.number == 1)
            rest = b"".join(message(field.number, field.data) for field in inner if field.number in (2, 3))
            out.append(message(1, message(1, resource + added) + rest))
    return b"".join(out)


class ClientMetric(NamedTuple):
    """One metric of a push: the sum of its data points, and the largest."""

    name: str
    is_delta: bool
    total: float
    largest: float


def client_metrics(metrics: bytes) -> Iterator[ClientMetric]:
    """The gauges and sums of a MetricsData message. Raises InvalidProtobuf if it is none."""
    for top in fields(metrics):
        for scope in fields(top.data) if top.number == 1 else ():
            for metric in fields(scope.data) if scope.number == 2 else ():
                if metric.number == 2:
                    yield from _metric(metric)


def _metric(metric: Field) -> Iterator[ClientMetric]:
    name, points, is_delta = "", list[float](), False
    for field in fields(metric.data):
        if field.number == 1:
            name = field.data.decode("utf-8", "replace")
        elif field.number in (_GAUGE, _SUM):
            for inner in fields(field.data):
                if inner.number == 1:
                    points += _points(inner.data)
                elif inner.number == 2 and field.number == _SUM:
                    is_delta = inner.integer == _DELTA
    if name and points:
        yield ClientMetric(name, is_delta, sum(points), max(points))


def _points(data: bytes) -> Iterator[float]:
    for field in fields(data):
        if field.number == 4:
            (value,) = _double(_bits(field.integer))
            if isfinite(value):
                yield value
        elif field.number == 6:
            yield float(_signed(_bits(field.integer))[0])
