"""What a rule is, and what its findings are.

A rule returns the bad subjects with a measure; a GPU without the fields of the rule is not bad. `incidents`
decides whether a bad state has lasted long enough. Rules that look at one GPU are in `gpu_rules` and run in
tasks; rules that compare GPUs are in `fleet_rules` and run on the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.telemetry.pipeline.columns import Floats, Ints

__all__ = ["Finding", "Rule", "group_median", "is_application_xid", "xid_action"]

#: The recommendations of NVIDIA's catalogue of XIDs, by code.
_XID_ACTIONS: Final = {
    **dict.fromkeys((13, 31, 43, 45, 68, 69), "restart the application"),
    **dict.fromkeys((48, 94, 95, 63, 64, 92, 119, 120, 140), "drain and reset the GPU"),
    **dict.fromkeys((74, 79, 62, 109, 110), "drain and reboot the host; then test the hardware"),
}
_OTHER_XID: Final = "look it up in NVIDIA's catalogue of XIDs"
_APPLICATION: Final = [code for code, action in _XID_ACTIONS.items() if action.endswith("application")]


class Finding(NamedTuple):
    """For each GPU: whether it is bad, whether that could be judged, and a measure of it."""

    bad: Any
    known: Any
    measure: Floats
    #: something new has happened to one that is bad already
    again: Any = None
    #: what a GPU was judged by, in words
    evidence: Callable[[int], str] | None = None


class Rule(NamedTuple):
    """A rule, and what its alerts say."""

    #: of the state of GPUs and the thresholds; for rules of the fleet also of the fleet's time
    judge: Callable[..., Finding]
    severity: str
    #: what to do about it; perhaps by the measure
    action: str | Callable[[float], str]
    #: counts towards a lemon node
    is_hardware: bool = False
    #: the subject of its alerts is a host
    is_of_host: bool = False
    #: it has waited already when it finds something: an alert opens at once
    looks_back: bool = False

    def action_for(self, measure: float) -> str:
        return self.action if isinstance(self.action, str) else self.action(measure)


def xid_action(code: float) -> str:
    return _XID_ACTIONS.get(int(code), _OTHER_XID)


def is_application_xid(codes: Any) -> Any:
    return np.isin(codes, _APPLICATION)


def group_median(groups: Ints, values: Floats) -> Floats:
    """For each value the median of its group."""
    order = np.lexsort((values, groups))
    first = np.flatnonzero(np.diff(groups[order], prepend=groups[order][:1] - 1)) if len(order) else order
    size = np.diff(np.append(first, len(order)))
    ordered = values[order]
    median = (ordered[first + (size - 1) // 2] + ordered[first + size // 2]) / 2
    out = np.empty(len(values))
    out[order] = np.repeat(median, size)
    return out
