"""Builds the documents of the monitoring port, in slices, and keeps a metrics page for a moment.

Scrapes that arrive while a page is built, or shortly after, share it. So many scrapers cost no more than one,
in time and in memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
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
from penstock.broker.monitoring.group_metrics import collect_groups, collect_kafka_groups
from penstock.broker.monitoring.health_facts import HealthFacts
from penstock.broker.monitoring.kafka_metrics import collect_kafka
from penstock.broker.monitoring.loop_watch import LoopWatch
from penstock.broker.monitoring.partition_metrics import ReplicaCounts, collect_partitions
from penstock.broker.monitoring.request_metrics import (
    collect_connections,
    collect_requests,
    collect_security,
)
from penstock.broker.monitoring.share_metrics import collect_shares
from penstock.broker.monitoring.slices import in_slices
from penstock.broker.monitoring.sources import Snapshot, Sources, take_snapshot
from penstock.broker.monitoring.telemetry_metrics import collect_telemetry
from penstock.observability.exposition import Format, Page
from penstock.observability.health import (
    Health,
    Level,
    broker_health,
    client_health,
    cluster_health,
    readiness,
    report,
)
from penstock.observability.http import Request, accepted_format
from penstock.observability.kafka_names import KAFKA
from penstock.observability.names import METRICS

__all__ = ["Pages"]

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
        self._shared: dict[tuple[str, Format], tuple[float, Document]] = {}
        self._paths: dict[str, Callable[[Request], Awaitable[Document]]] = {
            "/metrics": self._metrics,
            "/metrics/kafka": self._metrics,
            "/readyz": self._ready,
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
        reasons = readiness(self._facts.broker(None, 0.0))
        if reasons:
            return plain_text(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{reason}\n" for reason in reasons))
        return plain_text(HTTPStatus.OK, "ready\n")

    async def _health(self, request: Request) -> Document:
        snapshot = await take_snapshot(self._sources)
        topics: dict[str, Health] = {}
        lacking: list[int] = []
        await in_slices(self._facts.topics(topics, lacking))
        late_s = self._watch.worst_s
        document = report(
            broker_health(self._facts.broker(snapshot, late_s)),
            cluster_health(self._facts.cluster(sum(lacking))),
            topics,
            client_health(self._facts.clients()),
            self._facts.details(late_s),
        )
        well = document["status"] in (Level.HEALTHY, Level.DEGRADED)
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return Document(status, _JSON, [json.dumps(document, indent=2).encode() + b"\n"])

    # -- metrics

    async def _metrics(self, request: Request) -> Document:
        text_format = accepted_format(request.headers.get("accept", ""))
        key = (request.path, text_format)
        async with self._building:
            now = self._sources.clock.monotonic()
            made, document = self._shared.get(key, (0.0, None))
            if document is None or not 0 <= now - made < _SHARED_S:
                document = await self._build(request.path, text_format)
                self._shared = {key: (self._sources.clock.monotonic(), document)}
            return document

    async def _build(self, path: str, text_format: Format) -> Document:
        snapshot = await take_snapshot(self._sources)
        page = Page(METRICS if path == "/metrics" else KAFKA)
        collect = self._own if path == "/metrics" else self._kafka
        longest_s = await in_slices(collect(page, snapshot))
        chunks: list[bytes] = []
        self._longest_s = max(longest_s, await in_slices(map(chunks.append, page.render(text_format))))
        return Document(HTTPStatus.OK, text_format.value, chunks)

    def release(self) -> None:
        """Release the shared page: no request needs it any more."""
        self._shared = {}

    def _own(self, page: Page, snapshot: Snapshot) -> Iterator[None]:
        sources, counts = self._sources, ReplicaCounts()
        page.set("penstock_scrape_longest_slice_seconds", round(self._longest_s, 6))
        yield from collect_process(page, sources, snapshot, self._watch)
        yield from collect_requests(page, sources)
        yield from collect_connections(page, sources)
        yield from collect_security(page, sources)
        yield from collect_partitions(page, sources, counts)
        yield from collect_quorum(page, sources)
        yield from collect_groups(page, self._lags)
        yield from collect_shares(page, sources, self._lags)
        yield from collect_transactions(page, sources)
        yield from collect_storage(page, sources, snapshot)
        yield from collect_telemetry(page, sources)
        level = broker_health(self._facts.broker(snapshot, self._watch.worst_s)).level
        healthy = level in (Level.HEALTHY, Level.DEGRADED)
        yield from collect_analog(page, sources, snapshot, counts, self._consumed, healthy)

    def _kafka(self, page: Page, snapshot: Snapshot) -> Iterator[None]:
        yield from collect_kafka(page, self._sources, snapshot)
        yield from collect_kafka_groups(page, self._lags)
