"""OpenTelemetry's messages (OTLP 1): spans out, metrics of clients in and on.

A client's metrics are passed on as it has sent them, with attributes that name the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from struct import Struct
from typing import Final, NamedTuple

from penstock.observability.protobuf import (
    Budget,
    Field,
    TooManyFields,
    fields,
    fixed64,
    message,
    text,
    varint,
)
from penstock.observability.spans import Span

__all__ = ["FIELDS_MAX", "RESOURCES_MAX", "ClientMetric", "client_metrics", "encode_spans", "with_resource"]

_SCOPE: Final = "penstock"
_double: Final = Struct("<d").unpack
_bits: Final = Struct("<Q").pack
_signed: Final = Struct("<q").unpack
_DELTA: Final = 1
#: Fields of one push, and resources: clients choose the bytes, and two bytes can be a field. Clients of Kafka
#: send one resource, and some ten bytes per field.
FIELDS_MAX: Final = 50_000
RESOURCES_MAX: Final = 16
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
    if span.link is not None:
        parts.append(message(13, message(1, span.link[0]) + message(2, span.link[1])))
    return b"".join(parts)


def encode_spans(resource: Mapping[str, str | int | float | bool], spans: Sequence[Span]) -> bytes:
    """An ExportTraceServiceRequest with the spans of one process."""
    scope = message(1, text(1, _SCOPE)) + b"".join(message(2, _span(span)) for span in spans)
    return message(1, message(1, _attributes(1, resource)) + message(2, scope))


def with_resource(metrics: bytes, attributes: Mapping[str, str | int | float | bool]) -> bytes:
    """The metrics of a client with attributes of their resource: an ExportMetricsServiceRequest.

    Raises TooManyFields if there are too many resources: each of them gets all attributes.
    """
    added = _attributes(1, attributes)
    out: list[bytes] = []
    budget = Budget(FIELDS_MAX)
    for top in fields(metrics, budget):
        if top.number == 1:
            if len(out) == RESOURCES_MAX:
                raise TooManyFields(f"more than {RESOURCES_MAX} resources")
            inner = list(fields(top.data, budget))
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
    """The gauges and sums of a MetricsData message. Raises InvalidProtobuf if it is none.

    Raises TooManyFields after FIELDS_MAX fields.
    """
    budget = Budget(FIELDS_MAX)
    for top in fields(metrics, budget):
        for scope in fields(top.data, budget) if top.number == 1 else ():
            for metric in fields(scope.data, budget) if scope.number == 2 else ():
                if metric.number == 2:
                    yield from _metric(metric, budget)


def _metric(metric: Field, budget: Budget) -> Iterator[ClientMetric]:
    name, points, is_delta = "", list[float](), False
    for field in fields(metric.data, budget):
        if field.number == 1:
            name = field.data.decode("utf-8", "replace")
        elif field.number in (_GAUGE, _SUM):
            for inner in fields(field.data, budget):
                if inner.number == 1:
                    points += _points(inner.data, budget)
                elif inner.number == 2 and field.number == _SUM:
                    is_delta = inner.integer == _DELTA
    if name and points:
        yield ClientMetric(name, is_delta, sum(points), max(points))


def _points(data: bytes, budget: Budget) -> Iterator[float]:
    for field in fields(data, budget):
        if field.number == 4:
            (value,) = _double(_bits(field.integer))
            if isfinite(value):
                yield value
        elif field.number == 6:
            yield float(_signed(_bits(field.integer))[0])
