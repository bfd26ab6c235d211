"""The export to an OpenTelemetry receiver, and spans that join those of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.broker.monitoring.otlp_exporter import OtlpExporter, parse_headers
from penstock.client import Producer
from penstock.observability.spans import Span
from penstock.testing import broker
from tests.broker.monitoring.receivers import Receiver, receiver
from tests.broker.requests import new_name
from tests.observability.otlp_messages import ExportTraceServiceRequest

SPAN = Span(b"t" * 16, b"s" * 8, b"", "Produce", 2, 1, 2, {})


class Posts:
    """A receiver that fails on request."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Mapping[str, str], bytes]] = []
        self.fails = False

    def __call__(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        if self.fails:
            raise ConnectionRefusedError
        self.all.append((url, headers, body))


class Exports:
    def __init__(self) -> None:
        async def in_thread(function: Any, *args: Any) -> Any:
            return function(*args)

        workers: Any = SimpleNamespace(in_thread=in_thread)
        self.exported: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self.posts = Posts()
        self.exporter = OtlpExporter(
            "http://h:4318/", {"key": "k"}, {}, workers, (self.exported, self.dropped), self.posts
        )


def test_spans_leave_in_batches_and_are_bounded() -> None:
    found = Exports()
    found.exporter.add_spans([SPAN] * 3000)
    found.exporter.add_metrics(b"push")
    asyncio.run(found.exporter.flush())
    assert [url for url, _, _ in found.posts.all] == ["http://h:4318/v1/traces"] * 4 + [
        "http://h:4318/v1/metrics"
    ]
    assert found.posts.all[0][1] == {"Content-Type": "application/x-protobuf", "key": "k"}
    first = ExportTraceServiceRequest.FromString(found.posts.all[0][2])
    assert len(first.resource_spans[0].scope_spans[0].spans) == 512
    assert found.exported == {"spans": 2048, "metrics": 1}
    assert found.dropped == {"spans": 952, "metrics": 0}


def test_data_that_a_receiver_refuses_is_dropped_and_counted() -> None:
    found = Exports()
    found.posts.fails = True
    found.exporter.add_spans([SPAN] * 3)
    found.exporter.add_metrics(b"push")
    asyncio.run(found.exporter.flush())
    assert (found.dropped, found.exported) == ({"spans": 3, "metrics": 0}, {"spans": 0, "metrics": 0})
    found.posts.fails = False
    asyncio.run(found.exporter.flush())
    assert found.exported == {"spans": 0, "metrics": 1}


def test_headers_are_parsed() -> None:
    assert parse_headers("a=b, Authorization=Basic x==,") == {"a": "b", "Authorization": "Basic x=="}


@pytest.fixture
def client_spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def joined(received: Receiver, topic: str, partition: str, offset: int) -> list[dict[str, Any]]:
    """The broker's spans of the request that has written a record."""
    return [
        found
        for name, found in received.spans()
        if name == "Produce"
        and found.get("messaging.destination.name") == topic
        and found["messaging.destination.partition.id"] == partition
        and found["messaging.kafka.offset"]
        <= offset
        < found["messaging.kafka.offset"] + found["messaging.batch.message_count"]
    ]


def test_spans_of_brokers_join_spans_of_clients_by_offset(
    client_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.monitoring.otlp_exporter.INTERVAL_S", 0.05)
    topic = new_name("traced")

    async def play(bootstrap: str, received: Receiver) -> dict[str, Any]:
        async with asyncio.timeout(60), Producer(bootstrap) as producer:
            while True:
                await asyncio.gather(*(producer.send(topic, b"x", partition=0) for _ in range(3)))
                for span in client_spans.get_finished_spans():
                    of_client = dict(span.attributes or {})
                    offset = of_client["messaging.kafka.offset"]
                    assert isinstance(offset, int)
                    found = joined(received, topic, "0", offset)
                    if found and of_client["messaging.destination.name"] == topic:
                        return found[0]
                await asyncio.sleep(0.02)

    with receiver() as received:
        config = {
            "penstock.otlp.endpoint": received.endpoint,
            "penstock.otlp.headers": "key=secret",
            "penstock.trace.requests.per.second": "1000",
            "penstock.slow.request.ms": "60000",
        }
        with broker(config=config) as running:
            found = asyncio.run(play(running.bootstrap, received))
            # The client's span of the first record of a batch, which the broker's span has a link to.
            sent = {
                (span.context.trace_id, span.context.span_id) for span in client_spans.get_finished_spans()
            }
        links = received.links("Produce")
        assert links and sent.issuperset(links)
        assert found["penstock.slow"] is False
        assert found["penstock.stage.handle_ms"] > 0
        assert received.requests[0][1]["key"] == "secret"
