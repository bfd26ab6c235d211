"""The responses of the API. Rows are those of `queries`; names have units."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypedDict

from pydantic import BaseModel, Field

from penstock.telemetry.queries.alerts import Incident
from penstock.telemetry.queries.fleet import Energy, Health, Utilization
from penstock.telemetry.queries.gpus import Gpu
from penstock.telemetry.queries.hosts import HostCount
from penstock.telemetry.queries.idleness import Idle, IdleGroup
from penstock.telemetry.queries.now import NowGpu
from penstock.telemetry.queries.series import Sample, Window
from penstock.telemetry.queries.spans import Span, instant

__all__ = [
    "AlertPage",
    "EnergyAnswer",
    "GpuPage",
    "HealthAnswer",
    "IdleAnswer",
    "NowAnswer",
    "State",
    "TelemetryPage",
    "UtilizationAnswer",
    "bounds",
]

NextCursor = Annotated[str | None, Field(description="Cursor of the next page; null on the last page.")]
Total = Annotated[int, Field(description="Number of all items, also those beyond `limit`.")]


class _Bounds(TypedDict):
    start_time: datetime
    end_time: datetime


def bounds(span: Span) -> _Bounds:
    """A time range in a response."""
    return {"start_time": instant(span.start), "end_time": instant(max(span.start, span.end))}


class State(BaseModel):
    """The server's own state."""

    status: str


class _Answer(BaseModel):
    start_time: datetime
    end_time: Annotated[datetime, Field(description="Exclusive.")]


class GpuPage(_Answer):
    """GPUs with samples in the time range, by id."""

    items: list[Gpu]
    next_cursor: NextCursor


class TelemetryPage(_Answer):
    """Rows of one GPU in order of time and field."""

    gpu_id: str
    resolution: Annotated[str, Field(description="`raw` for samples, else the width of windows.")]
    items: list[Sample | Window]
    next_cursor: NextCursor


class UtilizationAnswer(_Answer):
    """How busy each group was, the busiest first."""

    by: str
    total: Total
    items: list[Utilization]


class EnergyAnswer(_Answer):
    """The energy of each group, the highest first."""

    by: str
    energy_wh: Annotated[
        float | None, Field(description="Of all groups together; null if nothing was measured.")
    ]
    total: Total
    items: list[Energy]


class IdleAnswer(_Answer):
    """GPUs that are held and wasted, the longest idle first; or groups of them."""

    by: str
    idle_gpu_hours: Annotated[
        float | None, Field(description="Of all of them together; null if no utilisation was measured.")
    ]
    wasted_gpu_hours: Annotated[
        float | None, Field(description="Idle hours, and all hours of GPUs that are busy in name only.")
    ]
    wasted_kwh: Annotated[
        float | None, Field(description="Energy of the wasted hours; null if nothing was measured.")
    ]
    wasted_cost: Annotated[
        float | None, Field(description="By the prices that the server was given; null without them.")
    ]
    total: Total
    items: list[Idle | IdleGroup]


class NowAnswer(BaseModel):
    """Every GPU at its newest sample, those that are wasted or in trouble first."""

    newest_sample: Annotated[datetime | None, Field(description="Of all GPUs; null without samples.")]
    gpus: Annotated[dict[str, int], Field(description="How many GPUs are in which state.")]
    total: Total
    items: list[NowGpu]


class HostsAnswer(BaseModel):
    """Hosts with GPUs, those that lack most first."""

    gpus: Annotated[int, Field(description="GPUs with samples just before the newest of all.")]
    gpus_missing: Annotated[int, Field(description="GPUs that are expected, and have none.")]
    total: Total
    items: list[HostCount]


class HealthAnswer(_Answer):
    """The state of every GPU, the worst first."""

    gpus: Annotated[dict[str, int], Field(description="How many GPUs are in which state.")]
    total: Total
    items: list[Health]


class AlertPage(_Answer):
    """Alerts that were open at any time in the time window, the newest first."""

    items: list[Incident]
    next_cursor: NextCursor
