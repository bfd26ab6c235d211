"""Questions about the whole fleet."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from penstock.telemetry.api.answers import (
    AlertPage,
    EnergyAnswer,
    HealthAnswer,
    IdleAnswer,
    UtilizationAnswer,
    bounds,
)
from penstock.telemetry.api.cursors import read_cursor, write_cursor
from penstock.telemetry.api.parameters import AlertQuery, GroupQuery, HealthQuery, IdleQuery, span_of
from penstock.telemetry.queries import fleet
from penstock.telemetry.queries.alerts import Incident, find_incidents
from penstock.telemetry.queries.gpus import find_gpus
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import HOUR_MS, milliseconds
from penstock.telemetry.thresholds import Thresholds

__all__ = ["alert_routes", "fleet_routes"]


def fleet_routes(reader: TableReader, thresholds: Thresholds) -> APIRouter:
    routes = APIRouter(prefix="/api/v1/fleet", tags=["fleet"])

    @routes.get("/utilization", summary="How busy GPUs are, by GPU, host, model, job or namespace")
    def utilization(query: Annotated[GroupQuery, Query()]) -> UtilizationAnswer:
        """Without `start_time`, in the hour before the end."""
        span = span_of(query, reader.extent(), HOUR_MS)
        found = fleet.utilization(fleet.totals(reader, span), query.by)
        return UtilizationAnswer(**bounds(span), by=query.by, total=len(found), items=found[: query.limit])

    @routes.get("/idle", summary="GPUs that jobs hold and do not use")
    def idle(query: Annotated[IdleQuery, Query()]) -> IdleAnswer:
        """Idle, or busy in name only. Without `start_time`, in the hour before the end.

        Minutes count as idle if nothing in them exceeded the threshold; in time windows of more than a day it
        is hours that count.
        """
        span = span_of(query, reader.extent(), HOUR_MS)
        found = fleet.idle(reader, span, thresholds)
        hours = sum(one.idle_s for one in found) / 3600
        return IdleAnswer(**bounds(span), idle_gpu_hours=hours, total=len(found), items=found[: query.limit])

    @routes.get("/energy", summary="Watt-hours, by GPU, host, model, job or namespace")
    def energy(query: Annotated[GroupQuery, Query()]) -> EnergyAnswer:
        """From the GPUs' own counters. Without `start_time`, in the hour before the end."""
        span = span_of(query, reader.extent(), HOUR_MS)
        found = fleet.energy(fleet.totals(reader, span), query.by)
        used_wh = [one.energy_wh for one in found if one.energy_wh is not None]
        sum_wh = sum(used_wh) if used_wh else None
        return EnergyAnswer(
            **bounds(span), by=query.by, energy_wh=sum_wh, total=len(found), items=found[: query.limit]
        )

    @routes.get("/health", summary="The state of every GPU")
    def health(query: Annotated[HealthQuery, Query()]) -> HealthAnswer:
        """Alerts that are open now; temperature and throttling of the hour before the end."""
        span = span_of(query, reader.extent(), HOUR_MS)
        found = fleet.health(fleet.totals(reader, span), find_gpus(reader, span), find_incidents(reader))
        states = fleet.count_by_status(found)
        chosen = [one for one in found if query.status in (None, one.status)]
        return HealthAnswer(**bounds(span), gpus=states, total=len(chosen), items=chosen[: query.limit])

    return routes


def alert_routes(reader: TableReader) -> APIRouter:
    routes = APIRouter(prefix="/api/v1", tags=["alerts"])

    @routes.get("/alerts", summary="What is, or was, wrong with which GPU or host")
    def alerts(query: Annotated[AlertQuery, Query()]) -> AlertPage:
        """All that were open at any time in the time window; without `start_time`, from the first one on."""
        span, after = span_of(query, reader.extent("alerts")), None
        if query.cursor is not None:
            span, after = read_cursor(query.cursor, query, "", tuple[int, str, str])
        asked = query.model_dump(
            include={"state", "rule", "severity", "subject", "hostname"}, exclude_none=True
        )
        found = [
            one
            for one in find_incidents(reader)
            if all(getattr(one, name) == value for name, value in asked.items())
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
