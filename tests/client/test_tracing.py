from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock.client import Consumer, Message, Producer, Refused, tracing


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A program that has configured OpenTelemetry, for the length of a test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def test_the_body_of_a_loop_is_in_the_senders_trace(
    bootstrap: str, name: str, spans: InMemorySpanExporter
) -> None:
    current: list[int] = []

    async def play() -> None:
        async with Producer(bootstrap) as producer:
            await producer.send(name, b"x", partition=0, headers={"mine": "kept"})
        async with Consumer(bootstrap, name, group=name) as consumer:
            message = await anext(consumer)
            assert [header for header, _ in message.headers] == ["mine", "traceparent"]
            current.append(trace.get_current_span().get_span_context().trace_id)

    asyncio.run(play())
    sent, looped = spans.get_finished_spans()
    assert sent.name == f"send {name}"
    assert sent.kind is trace.SpanKind.PRODUCER
    assert sent.attributes is not None and sent.attributes["messaging.kafka.offset"] == 0
    assert looped.name == f"process {name}"
    assert looped.kind is trace.SpanKind.CONSUMER
    assert looped.parent is not None and looped.parent.span_id == sent.context.span_id
    assert current == [sent.context.trace_id]


def test_handlers_run_inside_the_senders_trace(
    bootstrap: str, name: str, spans: InMemorySpanExporter
) -> None:
    async def play() -> None:
        async with Producer(bootstrap) as producer:
            await producer.send(name, b"x")
        async with Consumer(bootstrap, name, group=name) as consumer:
            seen = asyncio.get_running_loop().create_future()

            async def handle(message: Message) -> None:
                seen.set_result(trace.get_current_span().get_span_context().trace_id)

            running = asyncio.create_task(consumer.run(handle, style="parallel"))
            trace_id = await seen
            await consumer.close()
            await running
        sent, handled = spans.get_finished_spans()
        assert trace_id == sent.context.trace_id == handled.context.trace_id

    asyncio.run(play())


def test_a_loop_that_fails_is_seen_in_its_span(
    bootstrap: str, name: str, spans: InMemorySpanExporter
) -> None:
    async def play() -> None:
        async with Producer(bootstrap) as producer:
            await producer.send(name, b"x")
        async with Consumer(bootstrap, name, group=name) as consumer:
            async for _ in consumer:
                raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(play())
    _, failed = spans.get_finished_spans()
    assert failed.status.status_code is trace.StatusCode.ERROR


def test_a_failed_send_is_seen_in_its_span(bootstrap: str, name: str, spans: InMemorySpanExporter) -> None:
    async def play() -> None:
        async with Producer(bootstrap) as producer:
            await producer.send(name, b"x")
            with pytest.raises(Refused):
                await producer.send(name, b"x", partition=77)

    asyncio.run(play())
    _, failed = spans.get_finished_spans()
    assert failed.status.status_code is trace.StatusCode.ERROR


def test_no_tracing_without_an_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    assert tracing.configured() is None


@pytest.mark.process
def test_opentelemetry_is_not_even_imported() -> None:
    code = (
        "import sys; from penstock.client import tracing; assert tracing.configured() is None; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
