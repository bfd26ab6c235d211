"""The temperature that a GPU should have: by its power, and by the air of its host.

A model's temperature rises with power along a line, and each host shifts it by what its air does. Both are
medians: the slope is that of pairs of GPUs, and the shift of a host is that of its other GPUs. So a few hot
GPUs do not change what is expected of them.

Pure: numpy arrays in, numpy arrays out. Rules of the fleet and `penstock telemetry now` use the same.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Heat", "expected_heat"]

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
#: fewer GPUs of a model say nothing about how warm it is
_PEERS_MIN: Final = 8
#: two GPUs whose powers differ by less than this say nothing about the slope
_PAIR_GAP_W: Final = 25.0
_PAIRS_MIN: Final = 8
#: without a slope, only GPUs with about the power of the others are compared
_LEVEL_RANGE_W: Final = 50.0
#: fewer other GPUs of a host say nothing about its air
_HOST_OTHERS_MIN: Final = 3
#: a standard deviation from the median of absolute deviations
_MAD_TO_SIGMA: Final = 1.4826
#: an excess below so many deviations of the model's GPUs is their usual variation
_SIGMAS: Final = 4.0


class Heat(NamedTuple):
    """For each GPU its expected temperature, and how much it is above it; NaN where too few are comparable.

    `spread` is how far the GPUs of its model usually are from theirs, as an upper limit.
    """

    expected: _Floats
    excess: _Floats
    spread: _Floats

    def stands_out(self, excess_min_c: float) -> Any:
        """Which GPUs are hotter than expected by this much, and by more than is usual for their model."""
        return self.excess >= np.fmax(self.spread, excess_min_c)

    def evidence(self, gpu: int, power_w: float) -> str:
        return (
            f"{self.excess[gpu]:.0f} °C above the {self.expected[gpu]:.0f} °C expected of its model at "
            f"{power_w:.0f} W on its host"
        )


def expected_heat(models: _Ints, hosts: _Ints, power: _Floats, temperature: _Floats) -> Heat:
    """`models` and `hosts` are codes: equal ones belong together. Values that are NaN are left out."""
    size = len(power)
    by_power, spread = np.full(size, np.nan), np.full(size, np.nan)
    known = np.flatnonzero(~np.isnan(power + temperature))
    for own in _split(known, models[known]):
        if len(own) >= _PEERS_MIN:
            by_power[own] = _line(power[own], temperature[own])
    residual = temperature - by_power
    judged = np.flatnonzero(~np.isnan(residual))
    air = np.zeros(size)
    air[judged] = _median_of_others(hosts[judged], residual[judged])
    excess = residual - air
    for own in _split(judged, models[judged]):
        spread[own] = _SIGMAS * _MAD_TO_SIGMA * np.median(np.abs(excess[own]))
    return Heat(by_power + air, excess, spread)


def _split(places: _Ints, codes: _Ints) -> list[Any]:
    """The places of each code."""
    order = np.argsort(codes, kind="stable")
    return np.split(places[order], np.flatnonzero(np.diff(codes[order])) + 1) if len(places) else []


def _line(power: _Floats, temperature: _Floats) -> _Floats:
    """The temperatures of a model on a robust line; NaN for powers that nothing is known about."""
    slope = _slope(power, temperature)
    if slope is None:
        middle = float(np.median(power))
        near = np.abs(power - middle) <= _LEVEL_RANGE_W
        return np.where(near, np.median(temperature[near]), np.nan)
    line: _Floats = slope * power
    return line + np.median(temperature - line)


def _slope(power: _Floats, temperature: _Floats) -> float | None:
    """Degrees per watt, from pairs that are half of all GPUs apart in order of power; None without pairs.

    A median of all pairs would take a square of their number.
    """
    order = np.argsort(power, kind="stable")
    half = len(order) // 2
    low, high = order[: len(order) - half], order[half:]
    gap = power[high] - power[low]
    wide = gap >= _PAIR_GAP_W
    if np.count_nonzero(wide) < _PAIRS_MIN:
        return None
    slope = np.median((temperature[high] - temperature[low])[wide] / gap[wide])
    # A GPU that works harder is not cooler.
    return max(0.0, float(slope))


def _median_of_others(groups: _Ints, values: _Floats) -> _Floats:
    """For each value the median of the others of its group; 0 where they are too few."""
    order = np.lexsort((values, groups))
    first = np.flatnonzero(np.diff(groups[order], prepend=groups[order][:1] - 1)) if len(order) else order
    size = np.diff(np.append(first, len(order)))
    begin, members = np.repeat(first, size), np.repeat(size, size)
    rank, ordered = np.arange(len(order)) - begin, values[order]
    others = members - 1

    def of_others(place: Any) -> Any:
        # Without the value itself, all behind it move up by one.
        return ordered[begin + np.where(place < rank, place, np.minimum(place + 1, members - 1))]

    median = (of_others(np.maximum(others - 1, 0) // 2) + of_others(others // 2)) / 2
    out = np.empty(len(values))
    out[order] = np.where(others >= _HOST_OTHERS_MIN, median, 0.0)
    return out
