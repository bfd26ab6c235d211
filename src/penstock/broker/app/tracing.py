"""Composes the log of slow requests, sampling, and the export of spans and of clients' metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.broker.base.client_telemetry import ClientTelemetry
from penstock.broker.base.metrics import Metrics
from penstock.broker.replica.partition_table import Slot
from penstock.broker.request.dispatch import Dispatcher
from penstock.broker.request.request_subjects import Subjects
from penstock.broker.request.request_watch import NEVER_NS, RequestWatch
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.ids import TopicId
from penstock.ports import Clock, World

if TYPE_CHECKING:
    from penstock.broker.monitoring.otlp_exporter import OtlpExporter

__all__ = ["Tracing", "new_watch"]

_MS_NS: Final = 1_000_000


def new_watch(clock: Clock, find: Callable[[str | TopicId, int], Slot], image: ClusterImage) -> RequestWatch:
    """The watch over the requests of a broker, which logs none until `Tracing` has the configs."""

    def name_of(topic_id: TopicId) -> str | None:
        topic = image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    return RequestWatch(clock, Subjects(find, name_of), 0)


class Tracing:
    """The watch over a broker's requests. Samples and exports from `start` to `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        metrics: Metrics,
        client_telemetry: ClientTelemetry,
        watch: RequestWatch,
        dispatchers: Sequence[Dispatcher],
    ) -> None:
        """`watch` is that of `dispatchers`. Requests of the first one are sampled."""
        self._config = config
        self._token = world.rng.token
        self._workers = world.workers
        self._metrics = metrics
        self._telemetry = client_telemetry
        self.watch = watch
        self._dispatchers = dispatchers
        #: None if nothing is exported
        self.exporter: OtlpExporter | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.reconfigure()

    def reconfigure(self) -> None:
        """Take over the configs, which may have changed."""
        slow_ms = self._config.penstock_slow_request_ms
        for dispatcher in self._dispatchers:
            dispatcher.slow_ns = NEVER_NS if slow_ms < 0 else slow_ms * _MS_NS
        self.watch.limit.per_minute = self._config.penstock_slow_request_events_per_minute_max

    def start(self) -> None:
        endpoint = self._config.penstock_otlp_endpoint
        if not endpoint:
            return
        # Imported here: only a broker that exports needs these modules.
        from penstock.broker.monitoring.otlp_exporter import OtlpExporter, parse_headers
        from penstock.observability.spans import spans_of

        headers = self._config.penstock_otlp_headers
        resource = {"service.name": "penstock", "service.instance.id": str(self._config.node_id)}
        exporter = OtlpExporter(
            endpoint,
            parse_headers(headers or ""),
            resource,
            self._workers,
            (self._metrics.exported, self._metrics.export_dropped),
        )
        self.exporter = exporter
        self.watch.export = lambda request: exporter.add_spans(spans_of(request, self._token))
        self._telemetry.export = exporter.add_metrics
        exporter.start()
        if self._config.penstock_trace_requests_per_second:
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
        delay_s = 1 / self._config.penstock_trace_requests_per_second
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._sample)
