"""OpenTelemetry's messages as Google's library reads and writes them: the oracle of our own encoding."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["ExportTraceServiceRequest", "MetricsData", "attributes", "pushed"]

_T = descriptor_pb2.FieldDescriptorProto
_MANY = _T.LABEL_REPEATED
#: message: fields as (name, number, type, repeated)
_MESSAGES: dict[str, list[tuple[str, int, Any, bool]]] = {
    "AnyValue": [
        ("string_value", 1, _T.TYPE_STRING, False),
        ("bool_value", 2, _T.TYPE_BOOL, False),
        ("int_value", 3, _T.TYPE_INT64, False),
        ("double_value", 4, _T.TYPE_DOUBLE, False),
    ],
    "KeyValue": [("key", 1, _T.TYPE_STRING, False), ("value", 2, "AnyValue", False)],
    "Resource": [("attributes", 1, "KeyValue", True)],
    "InstrumentationScope": [("name", 1, _T.TYPE_STRING, False)],
    "Span": [
        ("trace_id", 1, _T.TYPE_BYTES, False),
        ("span_id", 2, _T.TYPE_BYTES, False),
        ("parent_span_id", 4, _T.TYPE_BYTES, False),
        ("name", 5, _T.TYPE_STRING, False),
        ("kind", 6, _T.TYPE_INT32, False),
        ("start_time_unix_nano", 7, _T.TYPE_FIXED64, False),
        ("end_time_unix_nano", 8, _T.TYPE_FIXED64, False),
        ("attributes", 9, "KeyValue", True),
        ("links", 13, "Link", True),
    ],
    "Link": [("trace_id", 1, _T.TYPE_BYTES, False), ("span_id", 2, _T.TYPE_BYTES, False)],
    "ScopeSpans": [("scope", 1, "InstrumentationScope", False), ("spans", 2, "Span", True)],
    "ResourceSpans": [("resource", 1, "Resource", False), ("scope_spans", 2, "ScopeSpans", True)],
    "ExportTraceServiceRequest": [("resource_spans", 1, "ResourceSpans", True)],
    "NumberDataPoint": [
        ("time_unix_nano", 3, _T.TYPE_FIXED64, False),
        ("as_double", 4, _T.TYPE_DOUBLE, False),
        ("as_int", 6, _T.TYPE_SFIXED64, False),
        ("attributes", 7, "KeyValue", True),
    ],
    "Gauge": [("data_points", 1, "NumberDataPoint", True)],
    "Sum": [
        ("data_points", 1, "NumberDataPoint", True),
        ("aggregation_temporality", 2, _T.TYPE_INT32, False),
        ("is_monotonic", 3, _T.TYPE_BOOL, False),
    ],
    "Metric": [("name", 1, _T.TYPE_STRING, False), ("gauge", 5, "Gauge", False), ("sum", 7, "Sum", False)],
    "ScopeMetrics": [("scope", 1, "InstrumentationScope", False), ("metrics", 2, "Metric", True)],
    "ResourceMetrics": [("resource", 1, "Resource", False), ("scope_metrics", 2, "ScopeMetrics", True)],
    "MetricsData": [("resource_metrics", 1, "ResourceMetrics", True)],
}


def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package="otlp", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name in ("AnyValue",):
            message.oneof_decl.add(name="value")
        for field, number, kind, repeated in fields:
            label = _MANY if repeated else _T.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = _T.TYPE_MESSAGE, f".otlp.{kind}"
            else:
                added.type = kind
            if name in ("AnyValue",):
                added.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _pool()


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"otlp.{name}"))


ExportTraceServiceRequest = _class("ExportTraceServiceRequest")
MetricsData = _class("MetricsData")


def attributes(found: Any) -> dict[str, Any]:
    """Attributes by their names."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found}


def pushed() -> bytes:
    """What a client pushes: a gauge, a delta sum, and a metric without points."""
    data = MetricsData()
    of_resource = data.resource_metrics.add()
    of_resource.resource.attributes.add(key="mine").value.string_value = "kept"
    metrics = of_resource.scope_metrics.add().metrics
    gauge = metrics.add(name="org.apache.kafka.producer.latency.avg").gauge
    gauge.data_points.add(as_double=1.5)
    gauge.data_points.add(as_double=4.5)
    total = metrics.add(name="org.apache.kafka.producer.sent.total").sum
    total.aggregation_temporality, total.is_monotonic = 1, True
    total.data_points.add(as_int=3)
    total.data_points.add(as_int=-1)
    metrics.add(name="without.points").gauge.SetInParent()
    return bytes(data.SerializeToString())
