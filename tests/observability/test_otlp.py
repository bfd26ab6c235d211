"""OpenTelemetry's messages, compared with Google's library."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.observability import otlp
from penstock.observability.otlp import RESOURCES_MAX, client_metrics, encode_spans, with_resource
from penstock.observability.protobuf import InvalidProtobuf, TooManyFields, fields, message
from penstock.observability.requests import PartitionRange, ServedRequest
from penstock.observability.spans import linked, spans_of
from tests.observability.otlp_messages import ExportTraceServiceRequest, MetricsData, attributes, pushed

_VALUES = st.one_of(
    st.text(max_size=20), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
)


def request(*partitions: PartitionRange) -> ServedRequest:
    return ServedRequest(
        api="Produce",
        version=11,
        listener="PLAINTEXT",
        client_id="app",
        peer="127.0.0.1:4",
        began_unix_ns=1_700_000_000_000_000_000,
        duration_ns=5_000_000,
        stages_ns={"handle": 2_000_000, "wait": 3_000_000},
        partitions=partitions,
        is_slow=True,
    )


def test_one_range_is_in_the_span_of_the_request() -> None:
    spans = spans_of(request(PartitionRange("orders", 3, 100, 7)), lambda size: b"\x01" * size)
    parsed = ExportTraceServiceRequest.FromString(encode_spans({"service.name": "penstock"}, spans))
    (of_resource,) = parsed.resource_spans
    assert attributes(of_resource.resource.attributes) == {"service.name": "penstock"}
    (span,) = of_resource.scope_spans[0].spans
    assert (span.trace_id, span.span_id, span.parent_span_id) == (b"\x01" * 16, b"\x01" * 8, b"")
    assert (span.name, span.kind) == ("Produce", 2)
    assert span.end_time_unix_nano - span.start_time_unix_nano == 5_000_000
    found = attributes(span.attributes)
    assert found["messaging.destination.name"] == "orders"
    assert found["messaging.destination.partition.id"] == "3"
    assert found["messaging.kafka.offset"] == 100
    assert found["messaging.batch.message_count"] == 7
    assert found["penstock.slow"] is True
    assert found["penstock.stage.wait_ms"] == 3.0


def test_a_trace_context_of_a_record_is_a_link() -> None:
    header = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    served = dataclasses.replace(request(PartitionRange("orders", 3, 100, 7)), traceparent=header)
    spans = spans_of(served, lambda size: b"\x01" * size)
    parsed = ExportTraceServiceRequest.FromString(encode_spans({}, spans))
    (link,) = parsed.resource_spans[0].scope_spans[0].spans[0].links
    assert link.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
    assert link.span_id.hex() == "b7ad6b7169203331"


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"00-00000000000000000000000000000000-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        b"\xff" * 55,
    ],
)
def test_anything_else_is_no_link(header: bytes | None) -> None:
    assert linked(header) is None


def test_several_ranges_are_child_spans() -> None:
    ranges = [PartitionRange("orders", index, 10 * index, None) for index in range(3)]
    parent, *children = spans_of(request(*ranges), lambda size: bytes(size))
    assert "messaging.kafka.offset" not in parent.attributes
    assert [child.attributes["messaging.kafka.offset"] for child in children] == [0, 10, 20]
    assert {child.parent_id for child in children} == {parent.span_id}
    assert "messaging.batch.message_count" not in children[0].attributes


@given(st.dictionaries(st.text(max_size=10), _VALUES, max_size=5))
def test_attributes_of_every_type(resource: dict[str, Any]) -> None:
    parsed = ExportTraceServiceRequest.FromString(encode_spans(resource, []))
    assert attributes(parsed.resource_spans[0].resource.attributes) == resource


def test_metrics_of_clients_are_read() -> None:
    latency, sent = client_metrics(pushed())
    assert latency == ("org.apache.kafka.producer.latency.avg", False, 6.0, 4.5)
    assert sent == ("org.apache.kafka.producer.sent.total", True, 2.0, 3.0)


def test_metrics_go_on_with_the_attributes_of_the_client_and_otherwise_unchanged() -> None:
    before, after = (
        MetricsData.FromString(pushed()),
        MetricsData.FromString(with_resource(pushed(), {"id": "x"})),
    )
    assert attributes(after.resource_metrics[0].resource.attributes) == {"mine": "kept", "id": "x"}
    assert after.resource_metrics[0].scope_metrics == before.resource_metrics[0].scope_metrics


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        before = list(fields(data))
        list(client_metrics(data))
        extended = with_resource(data, {"a": "b"})
    except InvalidProtobuf:
        return
    resources = [field for field in before if field.number == 1]
    assert len(list(fields(extended))) == len(resources)


@pytest.mark.parametrize("size", range(1, 40))
def test_a_message_that_is_cut_off_is_refused_or_a_shorter_one(size: int) -> None:
    try:
        assert len(list(client_metrics(pushed()[:-size]))) <= 2
    except InvalidProtobuf:
        return


def nested(inner: bytes, *numbers: int) -> bytes:
    """`inner` inside one message after the other."""
    for number in numbers:
        inner = message(number, inner)
    return inner


@pytest.mark.parametrize("path", [(), (1,), (2, 1), (2, 2, 1), (5, 2, 2, 1), (1, 5, 2, 2, 1)], ids=str)
def test_the_fields_of_a_push_are_bounded_wherever_they_are(
    path: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bytes can be a field: a megabyte of them took most of a second."""
    monkeypatch.setattr(otlp, "FIELDS_MAX", 100)
    assert not list(client_metrics(nested(b"\x08\x00" * (100 - len(path)), *path)))
    with pytest.raises(TooManyFields):
        list(client_metrics(nested(b"\x08\x00" * (101 - len(path)), *path)))


def test_the_fields_of_all_messages_of_a_push_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "FIELDS_MAX", 100)
    half = nested(b"\x08\x00" * 50, 2, 2, 1)
    with pytest.raises(TooManyFields):
        list(client_metrics(half + half))


def test_the_resources_of_a_push_are_bounded() -> None:
    """Each gets the attributes of the client, so two bytes became hundreds."""
    added = {"client_id": "x" * 1000}
    assert len(with_resource(b"\x0a\x00" * RESOURCES_MAX, added)) > 1000 * RESOURCES_MAX
    with pytest.raises(TooManyFields):
        with_resource(b"\x0a\x00" * (RESOURCES_MAX + 1), added)
