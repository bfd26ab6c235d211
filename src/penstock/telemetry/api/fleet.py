"""Questions about the whole fleet."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from penstock.telemetry.api.answers import (
    AlertPage,
    EnergyAnswer,
    HealthAnswer,
    HostsAnswer,
    IdleAnswer,
    NowAnswer,
    UtilizationAnswer,
    bounds,
)
from penstock.telemetry.api.cursors import read_cursor, write_cursor
from penstock.telemetry.api.parameters import (
    AlertQuery,
    GroupQuery,
    HealthQuery,
    HostQuery,
    IdleQuery,
    NowQuery,
    span_of,
)
from penstock.telemetry.inventory import Inventory
from penstock.telemetry.queries import fleet
from penstock.telemetry.queries.alerts import Incident, find_incidents
from penstock.telemetry.queries.gpus import Only, find_gpus
from penstock.telemetry.queries.hosts import find_hosts
from penstock.telemetry.queries.idleness import NO_PRICES, Prices, find_idle, group_idle
from penstock.telemetry.queries.now import count_states, find_now
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import DAY_MS, Span, instant, milliseconds
from penstock.telemetry.thresholds import Thresholds

__all__ = ["alert_routes", "fleet_routes"]


def fleet_routes(reader: TableReader, thresholds: Thresholds, prices: Prices = NO_PRICES) -> APIRouter:
    """The routes about all GPUs. Longer than other functions because it is a table: one entry per route."""
    routes = APIRouter(prefix="/api/v1/fleet", tags=["fleet"])
    inventory = Inventory(thresholds.hosts)

    def totals(span: Span, query: GroupQuery) -> Any:
        return inventory.with_racks(fleet.totals(reader, span, only=query.only))

    @routes.get("/now", summary="The state of each GPU at its newest sample")
    def now(query: Annotated[NowQuery, Query()]) -> NowAnswer:
        """GPUs of the last 24 hours of samples. No rule waits for a time, and no window must be closed."""
        extent = reader.extent()
        found = find_now(reader, thresholds, Only(query.hostname, query.workload, query.pod))
        chosen = [one for one in found if query.state in (None, one.state)]
        return NowAnswer(
            newest_sample=None if extent is None else instant(extent.end - 1),
            gpus=count_states(found),
            total=len(chosen),
            items=chosen[: query.limit],
        )

    @routes.get(
        "/utilization",
        summary="Utilization of GPUs, by GPU, host, rack, model, workload, job, pod or namespace",
    )
    def utilization(query: Annotated[GroupQuery, Query()]) -> UtilizationAnswer:
        """Without `start_time`, in the 24 hours before the end."""
        span = span_of(query, reader.extent(), DAY_MS)
        found = fleet.utilization(totals(span, query), query.by)
        return UtilizationAnswer(**bounds(span), by=query.by, total=len(found), items=found[: query.limit])

    @routes.get("/idle", summary="GPUs that are allocated and not used")
    def idle(query: Annotated[IdleQuery, Query()]) -> IdleAnswer:
        """Idle, or busy in name only. Without `start_time`, in the 24 hours before the end.

        Minutes count as idle if nothing in them exceeded the threshold; in time windows of more than a day it
        is hours that count.
        """
        span = span_of(query, reader.extent(), DAY_MS)
        found = find_idle(reader, span, thresholds, query.only, prices)
        items: list[Any] = found.gpus if query.by == "gpu" else group_idle(found.gpus, query.by, inventory)
        return IdleAnswer(
            **bounds(span),
            by=query.by,
            idle_gpu_hours=found.gpu_hours,
            wasted_gpu_hours=found.wasted_gpu_hours,
            wasted_kwh=found.wasted_kwh,
            wasted_cost=found.wasted_cost,
            total=len(items),
            items=items[: query.limit],
        )

    @routes.get("/energy", summary="Watt-hours, by GPU, host, rack, model, workload, job, pod or namespace")
    def energy(query: Annotated[GroupQuery, Query()]) -> EnergyAnswer:
        """From the GPUs' own counters, and from their power where they have none (`measured_by`).

        Without `start_time`, in the 24 hours before the end.
        """
        span = span_of(query, reader.extent(), DAY_MS)
        found = fleet.energy(totals(span, query), query.by)
        used_wh = [one.energy_wh for one in found if one.energy_wh is not None]
        sum_wh = sum(used_wh) if used_wh else None
        return EnergyAnswer(
            **bounds(span), by=query.by, energy_wh=sum_wh, total=len(found), items=found[: query.limit]
        )

    @routes.get("/hosts", summary="Hosts: their racks, the GPUs that they have, and that they should have")
    def hosts(query: Annotated[HostQuery, Query()]) -> HostsAnswer:
        """GPUs of the last 24 hours of samples, and hosts of the file of thresholds; most missing first."""
        found = find_hosts(reader, thresholds)
        chosen = [one for one in found if query.hostname in (None, one.hostname)]
        chosen = [one for one in chosen if query.rack in (None, one.rack)]
        return HostsAnswer(
            gpus=sum(one.gpus for one in chosen),
            gpus_missing=sum(one.gpus_missing for one in chosen),
            total=len(chosen),
            items=chosen[: query.limit],
        )

    @routes.get("/health", summary="The state of every GPU")
    def health(query: Annotated[HealthQuery, Query()]) -> HealthAnswer:
        """Alerts that are open now; temperature, memory and throttling of the 24 hours before the end."""
        span = span_of(query, reader.extent(), DAY_MS)
        gpus = find_gpus(reader, span, query.only)
        rows = fleet.totals(reader, span, only=query.only)
        found = [one for one in fleet.health(rows, gpus, find_incidents(reader)) if query.only.has(one)]
        states = fleet.count_by_status(found)
        chosen = [one for one in found if query.status in (None, one.status)]
        return HealthAnswer(**bounds(span), gpus=states, total=len(chosen), items=chosen[: query.limit])

    return routes


def alert_routes(reader: TableReader) -> APIRouter:
    routes = APIRouter(prefix="/api/v1", tags=["alerts"])

    @routes.get("/alerts", summary="Alerts about GPUs and hosts, open and resolved")
    def alerts(query: Annotated[AlertQuery, Query()]) -> AlertPage:
        """All that were open at any time in the time window; without `start_time`, from the first one on."""
        span, after = span_of(query, reader.extent("alerts")), None
        if query.cursor is not None:
            span, after = read_cursor(query.cursor, query, "", tuple[int, str, str])
        wanted = query.model_dump(
            include={"state", "rule", "severity", "subject", "hostname", "workload", "pod"}, exclude_none=True
        )
        found = [
            one
            for one in find_incidents(reader)
            if all(getattr(one, name) == value for name, value in wanted.items())
            and one.overlaps(span)
            and (after is None or _place(one) < after)
        ]
        page = found[: query.limit]
        more = write_cursor(query, "", span, _place(page[-1])) if len(found) > len(page) else None
        return AlertPage(**bounds(span), items=page, next_cursor=more)

    return routes


def _place(incident: Incident) -> tuple[int, str, str]:
    """Where an alert is in the order, which never changes."""
    return milliseconds(incident.opened_at), incident.rule, incident.subject
