"""The parameters of requests: their descriptions and valid values. Unknown parameters are refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from penstock.telemetry.api.problems import BadParameter
from penstock.telemetry.fields import FIELDS, field
from penstock.telemetry.pipeline.detectors.fleet_rules import RULES
from penstock.telemetry.queries.fleet import GROUPS, SEVERITIES
from penstock.telemetry.queries.gpus import Only
from penstock.telemetry.queries.now import STATES
from penstock.telemetry.queries.series import RESOLUTIONS
from penstock.telemetry.queries.spans import Span, milliseconds

__all__ = [
    "AlertQuery",
    "GpuQuery",
    "GroupQuery",
    "HealthQuery",
    "HostQuery",
    "IdleQuery",
    "NowQuery",
    "Period",
    "TelemetryQuery",
    "field_ids",
    "span_of",
]

_RFC_3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
#: Samples are from 1970 or later. A duration added to a time in the last year may exceed Python's calendar.
_YEARS: Final = range(1970, 9999)


def _instant(value: Any) -> datetime:
    text = str(value)
    if _RFC_3339.fullmatch(text):
        try:
            moment = datetime.fromisoformat(text.upper()).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"is not an RFC 3339 time: {error}") from error
        if moment.year not in _YEARS:
            raise ValueError(f"is not from {_YEARS[0]} to {_YEARS[-1]} in UTC")
        return moment
    # In a query a plus sign means a blank.
    hint = "; write its + as %2B" if re.search(r" \d\d:\d\d$", text) else ""
    raise ValueError(f"is not an RFC 3339 time with a zone, such as 2025-07-18T20:42:34Z{hint}")


@dataclass(frozen=True, slots=True)
class _OneOf:
    """One of these names: enumerations of the API are the tables of the code."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, *_: Any) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


Instant = Annotated[datetime, BeforeValidator(_instant)]
Limit = Annotated[int, Field(ge=1, le=10_000, description="The most items to return.")]
Cursor = Annotated[
    str | None,
    Field(description="`next_cursor` of the previous page; all parameters but `limit` must be the same."),
]


class _Known(BaseModel):
    """The base of all parameters."""

    @model_validator(mode="before")
    @classmethod
    def _knows_all(cls, values: Any) -> Any:
        """A misspelt parameter that is passed over gives the right answer to another question."""
        for name in values:
            if name not in cls.model_fields:
                near = get_close_matches(name, cls.model_fields, 1)
                hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(cls.model_fields)}"
                context = {"parameter": name, "hint": hint}
                raise PydanticCustomError("unknown", "is not a parameter of this route; {hint}", context)
        return values


class Period(_Known):
    """A time window."""

    start_time: Annotated[
        Instant | None, Field(description="RFC 3339, inclusive. The default depends on the route.")
    ] = None
    end_time: Annotated[
        Instant | None, Field(description="RFC 3339, exclusive. Default: just after the newest sample.")
    ] = None


class Filtered(Period):
    """Questions about some of the GPUs."""

    hostname: Annotated[str | None, Field(description="Only GPUs of this host.")] = None
    workload: Annotated[str | None, Field(description="Only times in which this workload had the GPU.")] = (
        None
    )
    pod: Annotated[str | None, Field(description="Only times in which this pod had the GPU.")] = None

    @property
    def only(self) -> Only:
        return Only(self.hostname, self.workload, self.pod)


class GpuQuery(Filtered):
    limit: Limit = 1000
    cursor: Cursor = None


class TelemetryQuery(Filtered):
    metric: Annotated[
        list[str],
        Field(description="A metric by any name of its DCGM field, or the field's number. May be repeated."),
    ] = []
    resolution: Annotated[
        Annotated[str, _OneOf(tuple(RESOLUTIONS))] | None,
        Field(description="Samples, or windows of this width. Default: by the length of the time window."),
    ] = None
    limit: Limit = 1000
    cursor: Cursor = None


class IdleQuery(Filtered):
    by: Annotated[
        str, _OneOf(tuple(GROUPS)), Field(description="What a group is: its GPUs are put together.")
    ] = "gpu"
    limit: Limit = 1000


class NowQuery(_Known):
    """There is no time window: the newest sample of each GPU counts."""

    hostname: Annotated[str | None, Field(description="Only GPUs of this host.")] = None
    workload: Annotated[str | None, Field(description="Only GPUs of this workload.")] = None
    pod: Annotated[str | None, Field(description="Only GPUs of this pod.")] = None
    state: Annotated[Annotated[str, _OneOf(STATES)] | None, Field(description="Only GPUs in this state.")] = (
        None
    )
    limit: Limit = 1000


class HostQuery(_Known):
    """There is no time window: hosts are counted at the newest sample."""

    hostname: Annotated[str | None, Field(description="Only this host.")] = None
    rack: Annotated[str | None, Field(description="Only hosts of this rack.")] = None
    limit: Limit = 1000


class GroupQuery(Filtered):
    by: Annotated[
        str, _OneOf(tuple(GROUPS)), Field(description="What a group is: its GPUs are put together.")
    ] = "host"
    limit: Limit = 1000


class HealthQuery(Filtered):
    status: Annotated[
        Annotated[str, _OneOf(SEVERITIES)] | None, Field(description="Only GPUs in this state.")
    ] = None
    limit: Limit = 1000


class AlertQuery(Filtered):
    state: Annotated[
        Annotated[str, _OneOf(("open", "resolved"))] | None, Field(description="Only alerts in this state.")
    ] = None
    rule: Annotated[
        Annotated[str, _OneOf(tuple(RULES))] | None, Field(description="Only alerts of this rule.")
    ] = None
    severity: Annotated[
        Annotated[str, _OneOf(SEVERITIES[:-1])] | None, Field(description="Only alerts of this severity.")
    ] = None
    subject: Annotated[str | None, Field(description="Only alerts about this GPU, or host.")] = None
    limit: Limit = 1000
    cursor: Cursor = None


def span_of(period: Period, extent: Span | None, width_ms: int | None = None) -> Span:
    """The period; an open end is that of `extent`, an open start `width_ms` before the end, or `extent`'s."""
    known = extent or Span(0, 0)
    end = known.end if period.end_time is None else milliseconds(period.end_time, round_up=True)
    if period.start_time is not None:
        start = milliseconds(period.start_time, round_up=True)
        if period.end_time is not None and start >= end:
            raise BadParameter("end_time", "is not after start_time")
    else:
        start = known.start if width_ms is None else end - width_ms
    return Span(start, max(start, end))


def field_ids(metrics: list[str]) -> list[int]:
    """The numbers of the fields that go, or went, by these names."""
    return [_field_id(name) for name in metrics]


def _field_id(name: str) -> int:
    known = FIELDS.get(int(name)) if re.fullmatch(r"-?\d{1,6}", name, re.ASCII) else field(name)
    if known is not None:
        return known.id
    names = [each.name for each in FIELDS.values()]
    near = [each for each in names if name and each.endswith(name.upper())]
    near = near or get_close_matches(name.upper(), names, 1)
    hint = f"did you mean {near[0]}?" if near else "metrics have DCGM's names, such as DCGM_FI_DEV_GPU_UTIL"
    raise BadParameter("metric", f"{name!r} is unknown; {hint}")
