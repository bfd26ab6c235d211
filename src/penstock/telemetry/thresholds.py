"""When detectors raise an alert: values in `thresholds.yaml`, which a user's file may change in parts."""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec
import yaml

from penstock.model.errors import PenstockError

__all__ = ["MissingGpu", "Thresholds", "WrongThresholds", "load_thresholds"]


class WrongThresholds(PenstockError):
    """A malformed file of thresholds; the message has the place and the error."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    for_s: float = 0.0
    clear_s: float = 0.0


class IdleOccupied(_Part, frozen=True):
    gpu_util_max_percent: float
    sm_active_max_share: float
    memory_used_min_mib: float


class FakeBusy(_Part, frozen=True):
    gpu_util_min_percent: float
    sm_active_max_share: float
    power_max_share: float
    peer_power_max_share: float


class Throttle(_Part, frozen=True):
    throttled_min_share: float


class Hot(_Part, frozen=True):
    excess_min_c: float
    temperature_min_c: float
    excess_from_c: float


class Ecc(_Part, frozen=True):
    corrected_min_per_minute: float
    corrected_smoothing_s: float


class Straggler(_Part, frozen=True):
    clock_deficit_min_share: float
    robust_z_min: float
    gpu_util_min_percent: float
    siblings_min: int


class LemonNode(_Part, frozen=True):
    gpus_min: int
    within_s: float


class MissingGpu(_Part, frozen=True):
    absent_s: float
    past_s: float
    hosts_min: int
    hosts_min_share: float


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file, part by part."""

    smoothing_s: float
    stale_s: float
    idle_occupied: IdleOccupied
    fake_busy: FakeBusy
    thermal_throttle: Throttle
    power_throttle: Throttle
    hot: Hot
    xid: _Part
    ecc: Ecc
    row_remap: _Part
    straggler: Straggler
    silent: _Part
    lemon_node: LemonNode
    missing_gpu: MissingGpu


def load_thresholds(changes: str = "") -> Thresholds:
    """The defaults, overridden by the YAML text `changes`."""
    text = resources.files("penstock.telemetry").joinpath("thresholds.yaml").read_text()
    try:
        overrides = yaml.safe_load(changes) or {}
        if not isinstance(overrides, dict):
            raise WrongThresholds("the file of thresholds must be a mapping")
        return msgspec.convert(_merged(yaml.safe_load(text), overrides), Thresholds)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise WrongThresholds(f"thresholds: {error}") from error


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        known = merged.get(name)
        merged[name] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
