"""Builds the documents of the monitoring port, in slices, and keeps a metrics page for a moment.

Scrapes that arrive while a page is built, or shortly after, share it. So many scrapers cost no more than one,
in time and in memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Final

from penstock.broker.monitoring.analog_metrics import ConsumedEstimate, collect_analog
from penstock.broker.monitoring.cluster_metrics import (
    collect_process,
    collect_quorum,
    collect_storage,
    collect_transactions,
)
from penstock.broker.monitoring.documents import LIVENESS, Document, plain_text
from penstock.broker.monitoring.group_lag import GroupLag
from penstock.broker.monitoring.group_metrics import collect_groups, collect_kafka_groups, collect_shares
from penstock.broker.monitoring.health_facts import HealthFacts
from penstock.broker.monitoring.kafka_exporter_metrics import collect_kafka
from penstock.broker.monitoring.link_metrics import collect_links
from penstock.broker.monitoring.loop_watch import LoopWatch
from penstock.broker.monitoring.partition_metrics import ReplicaCounts, collect_partitions
from penstock.broker.monitoring.request_metrics import (
    collect_connections,
    collect_requests,
    collect_security,
)
from penstock.broker.monitoring.slices import in_slices
from penstock.broker.monitoring.sources import Snapshot, Sources, take_snapshot
from penstock.observability.exposition import Format, Page
from penstock.observability.health import (
    ORDER,
    Finding,
    Health,
    Level,
    Part,
    broker_health,
    public_reasons,
    readiness,
)
from penstock.observability.health_merge import BrokerReport, merged, report
from penstock.observability.http import BadRequest, Request, accepted_format
from penstock.observability.kafka_families import KAFKA
from penstock.observability.metrics import METRICS
from penstock.observability.scrape_options import Detail, ScrapeOptions, scrape_options
from penstock.ports import Space

__all__ = ["Pages", "collect_health", "collect_telemetry"]

#: for how long a page is shared
_SHARED_S: Final = 0.5
_JSON: Final = "application/json"


class Pages:
    """The documents of one broker's monitoring port, by path."""

    def __init__(self, sources: Sources, facts: HealthFacts, watch: LoopWatch, lags: GroupLag) -> None:
        self._sources = sources
        self._facts = facts
        self._watch = watch
        self._lags = lags
        self._consumed = ConsumedEstimate()
        self._building = asyncio.Lock()
        #: how long the last page has held the event loop at most
        self._longest_s = 0.0
        self._shared: dict[tuple[str, Format, ScrapeOptions], tuple[float, Document]] = {}
        self._paths: dict[str, Callable[[Request], Awaitable[Document]]] = {
            "/metrics": self._metrics,
            "/metrics/kafka": self._metrics,
            "/readyz": self._ready,
            "/readyz/in-sync": self._in_sync,
            "/health": self._health,
        }

    async def get(self, request: Request) -> Document:
        """The document of a request's path; 404 if there is none."""
        found = self._paths.get(request.path)
        if found is None:
            known = ", ".join([LIVENESS, *self._paths])
            return plain_text(HTTPStatus.NOT_FOUND, f"unknown path; there are {known}\n")
        return await found(request)

    # -- health

    async def _ready(self, request: Request) -> Document:
        """Whether the broker should get traffic, and its health without names: probes need no token.

        The status depends on no worker thread, so the free space is that of the last measurement.
        """
        found = merged([await self._report(self._facts.space)], names_brokers=False).findings
        reasons = readiness(broker_health(self._facts.broker()))
        lines = ["not ready" if reasons else "ready"]
        lines += [f"{level}: {reason}" for level, reason in public_reasons(found)]
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return plain_text(status, "".join(f"{line}\n" for line in lines))

    async def _in_sync(self, request: Request) -> Document:
        """Whether the broker is ready and all of its replicas are in sync: the pace of a rolling update."""
        reasons = readiness(broker_health(self._facts.broker()))
        behind = 0

        def steps() -> Iterator[None]:
            nonlocal behind
            behind = yield from self._facts.replicas_behind()

        await in_slices(steps())
        lines = [f"not ready: {reason}" for reason in reasons]
        lines += [f"not in sync: {behind} replicas"] if behind else []
        status = HTTPStatus.SERVICE_UNAVAILABLE if lines else HTTPStatus.OK
        return plain_text(status, "".join(f"{line}\n" for line in lines or ["in sync"]))

    async def _health(self, request: Request) -> Document:
        snapshot = await take_snapshot(self._sources)
        document = report(await self._report(snapshot.space), self._facts.details())
        well = document["status"] in (Level.HEALTHY, Level.DEGRADED)
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return Document(status, _JSON, [json.dumps(document, indent=2).encode() + b"\n"])

    async def _report(self, space: Mapping[str, Space]) -> BrokerReport:
        found: list[Finding] = []

        def steps() -> Iterator[None]:
            found.extend((yield from self._facts.findings(space)))

        await in_slices(steps())
        return BrokerReport(self._sources.node_id, found)

    # -- metrics

    async def _metrics(self, request: Request) -> Document:
        text_format = accepted_format(request.headers.get("accept", ""))
        try:
            options = scrape_options(request.query)
        except BadRequest as e:
            return plain_text(e.status, f"{e}\n")
        key = (request.path, text_format, options)
        async with self._building:
            now = self._sources.clock.monotonic()
            made, document = self._shared.get(key, (0.0, None))
            if document is None or not 0 <= now - made < _SHARED_S:
                document = await self._build(*key)
                self._shared = {key: (self._sources.clock.monotonic(), document)}
            return document

    async def _build(self, path: str, text_format: Format, options: ScrapeOptions) -> Document:
        snapshot = await take_snapshot(self._sources)
        if path == "/metrics":
            page = Page(METRICS, options.has_buckets)
            collected = self._own(page, snapshot, options.detail)
        else:
            page = Page(KAFKA)
            collected = self._kafka(page, snapshot)
        longest_s = await in_slices(collected)
        chunks: list[bytes] = []
        self._longest_s = max(longest_s, await in_slices(map(chunks.append, page.render(text_format))))
        return Document(HTTPStatus.OK, text_format.value, chunks)

    def release(self) -> None:
        """Release the shared page: no request needs it any more."""
        self._shared = {}

    def _own(self, page: Page, snapshot: Snapshot, detail: Detail) -> Iterator[None]:
        sources, counts = self._sources, ReplicaCounts()
        page.set("penstock_scrape_longest_slice_seconds", round(self._longest_s, 6))
        yield from collect_process(page, sources, snapshot, self._watch)
        yield from collect_requests(page, sources)
        yield from collect_connections(page, sources)
        yield from collect_security(page, sources)
        yield from collect_partitions(page, sources, counts, detail)
        yield from collect_quorum(page, sources)
        yield from collect_groups(page, self._lags, sources.clock.now_ms())
        yield from collect_shares(page, sources, self._lags)
        yield from collect_transactions(page, sources)
        yield from collect_storage(page, sources, snapshot)
        yield from collect_links(page, sources)
        yield from collect_telemetry(page, sources)
        findings = yield from self._facts.findings(snapshot.space)
        collect_health(page, BrokerReport(sources.node_id, findings))
        level = broker_health(self._facts.broker()).level
        healthy = level in (Level.HEALTHY, Level.DEGRADED)
        yield from collect_analog(page, sources, snapshot, counts, self._consumed, healthy)

    def _kafka(self, page: Page, snapshot: Snapshot) -> Iterator[None]:
        yield from collect_kafka(page, self._sources, snapshot)
        yield from collect_kafka_groups(page, self._lags)


def collect_health(page: Page, report: BrokerReport) -> None:
    """Levels as numbers: 0 Healthy, 1 Degraded, 2 Unknown, 3 Unhealthy. The part `all` has the worst."""
    for part in Part:
        level = Health.of(each for each in report.findings if each.part is part).level
        page.set("penstock_health_level", ORDER.index(level), part=part.value)
    found = merged([report], names_brokers=False)
    page.set("penstock_health_level", ORDER.index(found.level), part="all")
    counts: dict[tuple[str, str], int] = {}
    for finding in found.findings:
        key = finding.part.value, finding.code
        counts[key] = counts.get(key, 0) + 1
    for (part_name, code), number in counts.items():
        page.set("penstock_health_findings", number, part=part_name, code=code)


def collect_telemetry(page: Page, sources: Sources) -> Iterator[None]:
    telemetry, metrics = sources.client_telemetry, sources.metrics
    page.set("penstock_client_telemetry_instances", len(telemetry.instances))
    for error, count in telemetry.pushes.items():
        page.set("penstock_client_telemetry_pushes_total", count, error=error)
    aggregates = telemetry.aggregates
    for name, total in list(aggregates.sums.items()):
        page.set("penstock_client_sum_total", total, metric=name)
    yield
    for name, mean, largest in list(aggregates.gauges(int(1000 * sources.clock.monotonic()))):
        page.set("penstock_client_gauge_mean", mean, metric=name)
        page.set("penstock_client_gauge_max", largest, metric=name)
    page.set("penstock_client_metrics_left_out_total", aggregates.left_out)
    for name, counts in (("exported", metrics.exported), ("dropped", metrics.export_dropped)):
        for signal, count in counts.items():
            page.set(f"penstock_otlp_{name}_total", count, signal=signal)
    yield
