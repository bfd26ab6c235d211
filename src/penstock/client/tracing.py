"""OpenTelemetry spans, with the W3C trace context in the messages' headers.

A client traces when the program has configured a tracer provider before making it. Otherwise `configured` is
None and OpenTelemetry is not imported: a program with an SDK has imported it already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from penstock.client.message import Delivery, Message

__all__ = ["CurrentSpan", "Tracing", "configured"]


def configured() -> Tracing | None:
    """Tracing if the program has set a provider, None if it has not."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return Tracing()


class Tracing:
    """Starts the spans and carries their context over the wire."""

    def __init__(self) -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._trace = trace
        self._context = context
        self._tracer = trace.get_tracer("penstock")
        self._propagator = TraceContextTextMapPropagator()

    def sending(self, topic: str, headers: list[tuple[str, bytes | None]]) -> Span:
        """A span for a message on its way; puts itself into the headers. `sent` ends it."""
        span = self._tracer.start_span(
            f"send {topic}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes=_attributes(topic, "send"),
        )
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        headers.extend((name, value.encode()) for name, value in carrier.items())
        return span

    def sent(self, span: Span, error: Exception | None, delivery: Delivery | None) -> None:
        if error is not None:
            span.record_exception(error)
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, str(error)))
        elif delivery is not None:
            span.set_attribute("messaging.destination.partition.id", str(delivery.partition))
            if delivery.offset is not None:
                span.set_attribute("messaging.kafka.offset", delivery.offset)
        span.end()

    @contextmanager
    def processing(self, message: Message) -> Iterator[Span]:
        """The span around a handler, child of the one that sent the message."""
        with self._tracer.start_as_current_span(
            f"process {message.topic}",
            context=self._sender(message.headers),
            kind=self._trace.SpanKind.CONSUMER,
            attributes={
                **_attributes(message.topic, "process"),
                "messaging.destination.partition.id": str(message.partition),
                "messaging.kafka.offset": message.offset,
            },
        ) as span:
            yield span

    def _sender(self, headers: Sequence[tuple[str, bytes | None]]) -> Context:
        carrier = {name: value.decode("latin-1") for name, value in headers if value is not None}
        return self._propagator.extract(carrier, self._context.Context())


class CurrentSpan:
    """The span of the message that a loop processes; nothing if the program does not trace."""

    def __init__(self) -> None:
        self._span: AbstractContextManager[Span] | None = None

    def begin(self, tracing: Tracing | None, message: Message) -> None:
        if tracing is not None:
            self._span = tracing.processing(message)
            self._span.__enter__()

    def end(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._span is not None:
            span, self._span = self._span, None
            span.__exit__(kind, error, trace)


def _attributes(topic: str, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": "kafka",
        "messaging.destination.name": topic,
        "messaging.operation.type": operation,
    }
