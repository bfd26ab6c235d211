"""GPUs and their telemetry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from penstock.telemetry.api.answers import GpuPage, TelemetryPage, bounds
from penstock.telemetry.api.cursors import read_cursor, write_cursor
from penstock.telemetry.api.parameters import GpuQuery, TelemetryQuery, field_ids, span_of
from penstock.telemetry.api.problems import BadParameter, UnknownGpu
from penstock.telemetry.queries.gpus import find_gpus, latest
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.series import RESOLUTIONS, Place, Resolution, pick_resolution, read_page
from penstock.telemetry.queries.spans import DAY_MS, Span

__all__ = ["gpu_routes"]

GpuId = Annotated[
    str, Path(description="The GPU's uuid.", examples=["GPU-5fd4f087-86f3-7a43-b711-4771313afc50"])
]


def gpu_routes(reader: TableReader) -> APIRouter:
    routes = APIRouter(prefix="/api/v1", tags=["gpus"])

    @routes.get("/gpus", summary="The GPUs for which there is telemetry")
    def list_gpus(query: Annotated[GpuQuery, Query()]) -> GpuPage:
        """In order of their ids. Without `start_time`, of the 24 hours before the end."""
        span, after = span_of(query, reader.extent(), DAY_MS), ""
        if query.cursor is not None:
            span, after = read_cursor(query.cursor, query, "", str)
        found = [gpu for gpu in find_gpus(reader, span, query.only) if gpu.gpu_id > after]
        page = found[: query.limit]
        more = write_cursor(query, "", span, page[-1].gpu_id) if len(found) > len(page) else None
        return GpuPage(**bounds(span), items=page, next_cursor=more)

    @routes.get("/gpus/{uuid}/telemetry", summary="One GPU's telemetry in a time window")
    def telemetry(uuid: GpuId, query: Annotated[TelemetryQuery, Query()]) -> TelemetryPage:
        """In order of time. Without `start_time`, from the first sample on.

        The answer's `start_time` and `end_time` are the part of the time window in which there are samples.
        How long that is decides between samples (up to an hour) and windows of 10 s (12 hours), 1 min (7
        days) or 1 h. A window is there when it has passed and no sample of it is waited for any more.
        """
        fields = field_ids(query.metric)
        if query.cursor is None:
            span, after = _requested_span(reader, query), None
        else:
            span, after = read_cursor(query.cursor, query, uuid, Place)
        resolution = _resolution(reader, query, span)
        page = read_page(reader, uuid, resolution, span, fields, query.limit, after, query.only)
        if not page.rows and not _is_known(reader, uuid, resolution, span):
            raise UnknownGpu(
                f"no telemetry of {uuid} in this time window, nor in the last 24 hours of samples"
            )
        more = None if page.last is None else write_cursor(query, uuid, span, page.last)
        return TelemetryPage(
            **bounds(span), gpu_id=uuid, resolution=resolution.name, items=page.rows, next_cursor=more
        )

    return routes


def _requested_span(reader: TableReader, query: TelemetryQuery) -> Span:
    """The part of a time range that contains samples, or windows of those that have expired."""
    extent = reader.history()
    span = span_of(query, extent)
    return span if extent is None else span.within(extent)


def _resolution(reader: TableReader, query: TelemetryQuery, span: Span) -> Resolution:
    if query.resolution is None:
        return pick_resolution(span, reader.extent())
    resolution = RESOLUTIONS[query.resolution]
    if span.width > resolution.most_ms:
        days = resolution.most_ms // DAY_MS
        reason = (
            f"{resolution.name} is for {days} days at most; narrow the time window, or take a coarser one"
        )
        raise BadParameter("resolution", reason)
    return resolution


def _is_known(reader: TableReader, uuid: str, resolution: Resolution, span: Span) -> bool:
    """Whether a GPU without rows of the requested metrics has other rows, in the range or recently."""
    if read_page(reader, uuid, resolution, span, (), limit=1).rows:
        return True
    return any(gpu.gpu_id == uuid for gpu in find_gpus(reader, latest(reader)))
