"""Composes the log of slow requests, sampling, and the export of spans and of clients' metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.app.parts import BrokerParts
from penstock.broker.request.dispatch import Dispatcher
from penstock.broker.request.request_subjects import Subjects
from penstock.broker.request.request_watch import NEVER_NS, RequestWatch
from penstock.model.config.keys import as_integer
from penstock.model.ids import TopicId

if TYPE_CHECKING:
    from penstock.broker.monitoring.otlp_exporter import OtlpExporter

__all__ = ["Tracing"]

_MS_NS: Final = 1_000_000


class Tracing:
    """The watch over a broker's requests. Samples and exports from `start` to `stop`."""

    def __init__(self, parts: BrokerParts) -> None:
        self._config = parts.config
        self._node_id = parts.node_id
        self._token = parts.rng.token
        self._workers = parts.workers
        self._metrics = parts.metrics
        image = parts.image

        def name_of(topic_id: TopicId) -> str | None:
            topic = image.topics_by_id.get(topic_id)
            return None if topic is None else topic.name

        self.watch = RequestWatch(parts.clock, Subjects(parts.partitions.find, name_of), 0)
        #: None if nothing is exported
        self.exporter: OtlpExporter | None = None
        self._telemetry = parts.client_telemetry
        self._dispatchers: Sequence[Dispatcher] = ()
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, dispatchers: Sequence[Dispatcher]) -> None:
        """Watch the requests of `dispatchers`; of the first one, requests are sampled."""
        self._dispatchers = dispatchers
        self.reconfigure()

    def reconfigure(self) -> None:
        """Take over the configs, which may have changed."""
        slow_ms = as_integer(self._config["penstock.slow.request.ms"])
        for dispatcher in self._dispatchers:
            dispatcher.slow_ns = NEVER_NS if slow_ms < 0 else slow_ms * _MS_NS
        self.watch.limit.per_minute = as_integer(self._config["penstock.slow.request.events.per.minute.max"])

    def start(self) -> None:
        endpoint = str(self._config["penstock.otlp.endpoint"])
        if not endpoint:
            return
        # Imported here: only a broker that exports needs these modules.
        from penstock.broker.monitoring.otlp_exporter import OtlpExporter, parse_headers
        from penstock.observability.spans import spans_of

        headers = self._config["penstock.otlp.headers"]
        resource = {"service.name": "penstock", "service.instance.id": str(self._node_id)}
        exporter = OtlpExporter(
            endpoint,
            parse_headers("" if headers is None else str(headers)),
            resource,
            self._workers,
            (self._metrics.exported, self._metrics.export_dropped),
        )
        self.exporter = exporter
        self.watch.export = lambda request: exporter.add_spans(spans_of(request, self._token))
        self._telemetry.export = exporter.add_metrics
        exporter.start()
        if as_integer(self._config["penstock.trace.requests.per.second"]):
            self._sample()

    async def stop(self) -> None:
        self.watch.export = self._telemetry.export = None
        if self._timer is not None:
            self._timer.cancel()
        if self.exporter is not None:
            await self.exporter.stop()

    def _sample(self) -> None:
        """Sample the next request, and again after an interval."""
        self._dispatchers[0].sample_next()
        delay_s = 1 / as_integer(self._config["penstock.trace.requests.per.second"])
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._sample)
