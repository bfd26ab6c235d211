"""The one table of metrics: DCGM's fields by number, under every name that they go or went by.

A field's number never changes. Its name may: DCGM 4.6 renamed GPU_TEMP to GPU_TEMP_CELSIUS and many more. So
a field is identified by its number under every name, and has one `name` here, the one that exporters and
dashboards have used longest. DCGM marks a missing value by values at the end of the range of the field's type
(blanks). The type alone decides which ones: an energy counter in millijoules exceeds the 32-bit blanks within
an hour, and is no blank.

Numbers below zero are Penstock's own fields, which DCGM does not have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

__all__ = [
    "FIELDS",
    "HEAT_REASONS",
    "POWER_REASONS",
    "Blank",
    "Field",
    "FieldType",
    "Kind",
    "Verdict",
    "blank",
    "field",
    "smi_field",
]

#: bits of CLOCKS_EVENT_REASONS: the power limit or the power supply holds the clocks down, heat does
POWER_REASONS, HEAT_REASONS = 0x04 | 0x80, 0x20 | 0x40


class Kind(StrEnum):
    """How values of a field that follow each other relate."""

    GAUGE = "gauge"
    #: never falls, except to start again when the driver is loaded or the GPU is reset
    COUNTER = "counter"
    #: the code of the last event: stays until the next one, so only a change says that something happened
    LAST_CODE = "last-code"


class FieldType(StrEnum):
    """DCGM's type of a field, which decides its blank values."""

    INT32 = "int32"
    INT64 = "int64"
    DOUBLE = "double"


class Blank(Enum):
    """Why there is no value."""

    BLANK = "blank"
    NOT_FOUND = "not found"
    NOT_SUPPORTED = "not supported"
    NOT_PERMITTED = "not permitted"


class Verdict(StrEnum):
    """The verdict on a value."""

    VALID = "valid"
    BLANK = "blank"
    OUT_OF_RANGE = "out of range"
    NOT_A_NUMBER = "not a number"


#: Values of a type from here on are blanks; the distance from here says why.
FIRST_BLANK: Final[dict[FieldType, int]] = {
    FieldType.INT32: 0x7FFFFFF0,
    FieldType.INT64: 0x7FFFFFFFFFFFFFF0,
    FieldType.DOUBLE: 140737488355328,
}


def blank(type: FieldType, value: float) -> Blank | None:
    """Why `value` is no value of this type, or None if it is one.

    A 64-bit blank that has been through a float has lost its last digits, and with them the reason.
    """
    first = FIRST_BLANK[type]
    if not value >= (float(first) if isinstance(value, float) else first):
        return None
    reasons = tuple(Blank)
    distance = 0 if math.isinf(value) else int(value) - first
    # Values beyond the last reason come from a broken exporter, and count as missing.
    return reasons[distance] if distance < len(reasons) else Blank.BLANK


@dataclass(frozen=True, slots=True)
class Field:
    """One metric. A working GPU reports `low` to `high`; any other value is an error of the exporter."""

    id: int
    name: str
    unit: str
    type: FieldType
    kind: Kind
    low: float
    high: float
    #: other names in Prometheus metrics and DCGM's headers
    aliases: tuple[str, ...] = ()
    #: columns of `nvidia-smi --query-gpu`
    smi: tuple[str, ...] = ()

    def judge(self, value: float) -> Verdict:
        if math.isnan(value):
            return Verdict.NOT_A_NUMBER
        if blank(self.type, value) is not None:
            return Verdict.BLANK
        return Verdict.VALID if self.low <= value <= self.high else Verdict.OUT_OF_RANGE


_I, _D = FieldType.INT64, FieldType.DOUBLE
_GAUGE, _COUNTER, _LAST = Kind.GAUGE, Kind.COUNTER, Kind.LAST_CODE
#: no counter of a field's lifetime gets here: 146 years in nanoseconds, 146 thousand GPU-years at 1 kW in mJ
_ENDLESS = float(1 << 62)
_DEV, _PROF = "DCGM_FI_DEV_", "DCGM_FI_PROF_"


def _dev(
    id: int,
    name: str,
    unit: str,
    type: FieldType,
    kind: Kind,
    high: float,
    *,
    low: float = 0.0,
    also: str = "",
    smi: str = "",
) -> Field:
    aliases = tuple(_DEV + alias for alias in also.split())
    return Field(id, _DEV + name, unit, type, kind, low, high, aliases, tuple(smi.split()))


def _ratio(id: int, name: str, also: str) -> Field:
    # A ratio of two counters that are not read at the same instant may come out a little above one.
    return Field(id, _PROF + name, "ratio", _D, _GAUGE, 0.0, 1.05, (_PROF + also,))


def _rate(id: int, name: str) -> Field:
    return Field(id, _PROF + name, "B/s", _I, _GAUGE, 0.0, 4e12)


_TABLE: Final = (
    Field(-1, "up", "boolean", _I, _GAUGE, 0.0, 1.0),
    _dev(100, "SM_CLOCK", "MHz", _I, _GAUGE, 10_000, smi="clocks.current.sm clocks.sm"),
    _dev(101, "MEM_CLOCK", "MHz", _I, _GAUGE, 20_000, smi="clocks.current.memory clocks.mem"),
    _dev(102, "VIDEO_CLOCK", "MHz", _I, _GAUGE, 10_000, smi="clocks.current.video clocks.video"),
    _dev(
        112,
        "CLOCKS_EVENT_REASONS",
        "bits",
        _I,
        _GAUGE,
        0xFFFF,
        also="CLOCK_THROTTLE_REASONS",
        smi="clocks_event_reasons.active clocks_throttle_reasons.active",
    ),
    _dev(113, "MAX_SM_CLOCK", "MHz", _I, _GAUGE, 10_000, smi="clocks.max.sm"),
    _dev(140, "MEMORY_TEMP", "°C", _I, _GAUGE, 150, also="MEMORY_TEMP_CELSIUS", smi="temperature.memory"),
    _dev(150, "GPU_TEMP", "°C", _I, _GAUGE, 150, also="GPU_TEMP_CELSIUS", smi="temperature.gpu"),
    _dev(
        153,
        "GPU_TEMP_LIMIT",
        "°C",
        _I,
        _GAUGE,
        150,
        low=-50,
        also="GPU_TEMP_MARGIN_CELSIUS",
        smi="temperature.gpu.tlimit",
    ),
    _dev(
        155,
        "POWER_USAGE",
        "W",
        _D,
        _GAUGE,
        5_000,
        also="BOARD_POWER_WATTS",
        smi="power.draw.average power.draw",
    ),
    _dev(156, "TOTAL_ENERGY_CONSUMPTION", "mJ", _I, _COUNTER, _ENDLESS),
    _dev(
        157,
        "POWER_USAGE_INSTANT",
        "W",
        _D,
        _GAUGE,
        5_000,
        also="BOARD_POWER_RAW_WATTS",
        smi="power.draw.instant",
    ),
    _dev(158, "SLOWDOWN_TEMP", "°C", _I, _GAUGE, 150, also="GPU_TEMP_SLOWDOWN_CELSIUS"),
    _dev(
        160,
        "POWER_MGMT_LIMIT",
        "W",
        _D,
        _GAUGE,
        5_000,
        also="BOARD_POWER_LIMIT_REQUESTED_WATTS",
        smi="power.limit",
    ),
    _dev(
        164,
        "ENFORCED_POWER_LIMIT",
        "W",
        _D,
        _GAUGE,
        5_000,
        also="BOARD_POWER_LIMIT_ENFORCED_WATTS",
        smi="enforced.power.limit",
    ),
    _dev(190, "PSTATE", "state", _I, _GAUGE, 15, also="GPU_PSTATE", smi="pstate"),
    _dev(202, "PCIE_REPLAY_COUNTER", "count", _I, _COUNTER, _ENDLESS, also="PCIE_REPLAY_TOTAL"),
    # It is called a ratio since 4.6, and still counts to a hundred.
    _dev(203, "GPU_UTIL", "%", _I, _GAUGE, 100, also="GPU_UTIL_RATIO", smi="utilization.gpu"),
    _dev(204, "MEM_COPY_UTIL", "%", _I, _GAUGE, 100, smi="utilization.memory"),
    _dev(206, "ENC_UTIL", "%", _I, _GAUGE, 100, smi="utilization.encoder"),
    _dev(207, "DEC_UTIL", "%", _I, _GAUGE, 100, smi="utilization.decoder"),
    _dev(230, "XID_ERRORS", "code", _I, _LAST, 1_000, also="XID_ERROR"),
    _dev(237, "PCIE_LINK_GEN", "generation", _I, _GAUGE, 10, smi="pcie.link.gen.current"),
    _dev(238, "PCIE_LINK_WIDTH", "lanes", _I, _GAUGE, 32, smi="pcie.link.width.current"),
    _dev(240, "POWER_VIOLATION", "ns", _I, _COUNTER, _ENDLESS),
    _dev(241, "THERMAL_VIOLATION", "ns", _I, _COUNTER, _ENDLESS),
    _dev(242, "SYNC_BOOST_VIOLATION", "ns", _I, _COUNTER, _ENDLESS),
    _dev(243, "BOARD_LIMIT_VIOLATION", "ns", _I, _COUNTER, _ENDLESS),
    _dev(244, "LOW_UTIL_VIOLATION", "ns", _I, _COUNTER, _ENDLESS),
    _dev(245, "RELIABILITY_VIOLATION", "ns", _I, _COUNTER, _ENDLESS),
    _dev(250, "FB_TOTAL", "MiB", _I, _GAUGE, 4_000_000, smi="memory.total"),
    _dev(251, "FB_FREE", "MiB", _I, _GAUGE, 4_000_000, smi="memory.free"),
    _dev(252, "FB_USED", "MiB", _I, _GAUGE, 4_000_000, smi="memory.used"),
    _dev(253, "FB_RESERVED", "MiB", _I, _GAUGE, 4_000_000, smi="memory.reserved"),
    _dev(254, "FB_USED_PERCENT", "ratio", _D, _GAUGE, 1.0, also="FB_USED_RATIO"),
    _dev(
        310, "ECC_SBE_VOL_TOTAL", "count", _I, _COUNTER, _ENDLESS, smi="ecc.errors.corrected.volatile.total"
    ),
    _dev(
        311, "ECC_DBE_VOL_TOTAL", "count", _I, _COUNTER, _ENDLESS, smi="ecc.errors.uncorrected.volatile.total"
    ),
    _dev(
        312, "ECC_SBE_AGG_TOTAL", "count", _I, _COUNTER, _ENDLESS, smi="ecc.errors.corrected.aggregate.total"
    ),
    _dev(
        313,
        "ECC_DBE_AGG_TOTAL",
        "count",
        _I,
        _COUNTER,
        _ENDLESS,
        smi="ecc.errors.uncorrected.aggregate.total",
    ),
    _dev(390, "RETIRED_SBE", "pages", _I, _COUNTER, _ENDLESS, also="PAGE_RETIRED_SBE_TOTAL"),
    _dev(391, "RETIRED_DBE", "pages", _I, _COUNTER, _ENDLESS, also="PAGE_RETIRED_DBE_TOTAL"),
    _dev(
        392,
        "RETIRED_PENDING",
        "boolean",
        _I,
        _GAUGE,
        64,
        also="PAGE_RETIRED_PENDING",
        smi="retired_pages.pending",
    ),
    _dev(
        393,
        "UNCORRECTABLE_REMAPPED_ROWS",
        "rows",
        _I,
        _COUNTER,
        _ENDLESS,
        also="ROW_REMAP_UNCORRECTABLE_TOTAL",
        smi="remapped_rows.uncorrectable",
    ),
    _dev(
        394,
        "CORRECTABLE_REMAPPED_ROWS",
        "rows",
        _I,
        _COUNTER,
        _ENDLESS,
        also="ROW_REMAP_CORRECTABLE_TOTAL",
        smi="remapped_rows.correctable",
    ),
    _dev(
        395,
        "ROW_REMAP_FAILURE",
        "boolean",
        _I,
        _GAUGE,
        1,
        also="ROW_REMAP_FAILED",
        smi="remapped_rows.failure",
    ),
    _dev(396, "ROW_REMAP_PENDING", "boolean", _I, _GAUGE, 1, smi="remapped_rows.pending"),
    _dev(449, "NVLINK_BANDWIDTH_TOTAL", "MB/s", _I, _GAUGE, 10_000_000, also="NVLINK_THROUGHPUT_TOTAL"),
    _ratio(1001, "GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO"),
    _ratio(1002, "SM_ACTIVE", "SM_UTIL_RATIO"),
    _ratio(1003, "SM_OCCUPANCY", "SM_OCCUPANCY_RATIO"),
    _ratio(1004, "PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO"),
    _ratio(1005, "DRAM_ACTIVE", "DRAM_UTIL_RATIO"),
    _ratio(1006, "PIPE_FP64_ACTIVE", "FP64_UTIL_RATIO"),
    _ratio(1007, "PIPE_FP32_ACTIVE", "FP32_UTIL_RATIO"),
    _ratio(1008, "PIPE_FP16_ACTIVE", "FP16_UTIL_RATIO"),
    _rate(1009, "PCIE_TX_BYTES"),
    _rate(1010, "PCIE_RX_BYTES"),
    _rate(1011, "NVLINK_TX_BYTES"),
    _rate(1012, "NVLINK_RX_BYTES"),
)

#: every field by its number
FIELDS: Final[dict[int, Field]] = {one.id: one for one in _TABLE}
_BY_NAME: Final = {name: one for one in _TABLE for name in (one.name, *one.aliases)}
_BY_COLUMN: Final = {column: one for one in _TABLE for column in one.smi}


def field(name: str) -> Field | None:
    """The field that goes, or went, by this name."""
    return _BY_NAME.get(name)


def smi_field(column: str) -> Field | None:
    """The field in this column of `nvidia-smi --query-gpu`, named without its unit."""
    return _BY_COLUMN.get(column)
