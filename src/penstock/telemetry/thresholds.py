"""When detectors raise an alert. A user's file may change any of these values.

Units are in the names: s seconds, c degrees Celsius, percent of 100, shares of 1.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import yaml

from penstock.model.errors import PenstockError

__all__ = ["Host", "MissingGpu", "Thresholds", "WrongThresholds", "load_thresholds"]


class WrongThresholds(PenstockError):
    """A malformed file of thresholds; the message has the place and the error."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    #: how long a state must last before an alert opens
    for_s: float = 0.0
    #: how long it must be over before the alert resolves
    clear_s: float = 0.0


class IdleOccupied(_Part, frozen=True):
    """Nothing runs on the GPU, and a workload holds it or its memory is in use."""

    gpu_util_max_percent: float = 2.0
    sm_active_max_share: float = 0.02
    #: the driver and a display take less
    memory_used_min_mib: float = 1024.0
    for_s: float = 300.0
    clear_s: float = 30.0


class FakeBusy(_Part, frozen=True):
    """The GPU reports that it is busy, and few of its multiprocessors are."""

    gpu_util_min_percent: float = 80.0
    sm_active_max_share: float = 0.25
    #: without SM_ACTIVE: of the GPU's power limit, or of its model's
    power_max_share: float = 0.3
    #: where no limit is known: of the median of busy GPUs of its model
    peer_power_max_share: float = 0.5
    for_s: float = 180.0
    clear_s: float = 60.0


class ThermalThrottle(_Part, frozen=True):
    """Heat holds the clocks down, which does not happen to a healthy GPU."""

    throttled_min_share: float = 0.02
    for_s: float = 60.0
    clear_s: float = 60.0


class PowerThrottle(_Part, frozen=True):
    """The power limit holds the clocks down."""

    throttled_min_share: float = 0.04
    for_s: float = 60.0
    clear_s: float = 60.0


class Hot(_Part, frozen=True):
    """Hotter than its power and its host explain, or hot in any case."""

    #: and more than GPUs of its model usually differ
    excess_min_c: float = 8.0
    #: cooler ones are not hot, whatever their peers are
    excess_from_c: float = 60.0
    temperature_min_c: float = 88.0
    for_s: float = 120.0
    clear_s: float = 60.0


class Xid(_Part, frozen=True):
    """The driver has reported an error: a change of the last code, not its presence."""

    clear_s: float = 30.0


class Ecc(_Part, frozen=True):
    """Memory errors: any uncorrectable one, or many corrected ones."""

    corrected_min_per_minute: float = 1.0
    corrected_smoothing_s: float = 300.0
    clear_s: float = 600.0


class RowRemap(_Part, frozen=True):
    """Rows of memory were replaced, or could not be."""

    clear_s: float = 600.0


class Straggler(_Part, frozen=True):
    """Slower than the other GPUs of its job."""

    clock_deficit_min_share: float = 0.04
    robust_z_min: float = 3.5
    gpu_util_min_percent: float = 50.0
    siblings_min: int = 4
    for_s: float = 120.0
    clear_s: float = 60.0


class Silent(_Part, frozen=True):
    """Without samples while other GPUs have some."""

    for_s: float = 60.0


class LemonNode(_Part, frozen=True):
    """Several GPUs of one host have had hardware faults."""

    gpus_min: int = 3
    within_s: float = 86400.0


class MissingGpu(_Part, frozen=True):
    """A host has fewer GPUs than it had, or than other hosts of their model have."""

    #: a GPU without samples for this long is not there
    absent_s: float = 60.0
    #: and should be, if it was there in this time
    past_s: float = 604800.0
    #: peers: at least so many hosts of the model,
    hosts_min: int = 4
    #: and so many of them with the same number of GPUs
    hosts_min_share: float = 0.75
    for_s: float = 60.0
    clear_s: float = 30.0


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of a host, or of all hosts of a pattern, from outside."""

    #: how many GPUs it should have
    gpus: Annotated[int, msgspec.Meta(ge=0)] | None = None
    rack: str | None = None


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file, part by part: one part for each rule, and one for hosts."""

    #: by name or pattern, such as dgx-0*; the first that fits counts
    hosts: dict[str, Host] = {}

    #: gauges and rates are smoothed over this time before they are judged
    smoothing_s: float = 60.0
    #: a GPU without samples for this long is compared with no other
    stale_s: float = 60.0
    idle_occupied: IdleOccupied = IdleOccupied()
    fake_busy: FakeBusy = FakeBusy()
    thermal_throttle: ThermalThrottle = ThermalThrottle()
    power_throttle: PowerThrottle = PowerThrottle()
    hot: Hot = Hot()
    xid: Xid = Xid()
    ecc: Ecc = Ecc()
    row_remap: RowRemap = RowRemap()
    straggler: Straggler = Straggler()
    silent: Silent = Silent()
    lemon_node: LemonNode = LemonNode()
    missing_gpu: MissingGpu = MissingGpu()


def load_thresholds(changes: str = "") -> Thresholds:
    """The defaults, overridden by the YAML text `changes`."""
    try:
        overrides = yaml.safe_load(changes) or {}
        if not isinstance(overrides, dict):
            raise WrongThresholds("the file of thresholds must be a mapping")
        return msgspec.convert(overrides, Thresholds)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise WrongThresholds(f"thresholds: {error}") from error
