"""The growth of costs as a picture: a line per cost, both axes logarithmic."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import ceil, floor, log10
from typing import Final, NamedTuple

from bench.plot import COLORS, STYLE

__all__ = ["PICTURES", "Picture", "curves"]

_WIDTH, _HEIGHT = 760, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 250, 40, 48
_PALETTE: Final = (*COLORS, "#b23a48", "#4c5866")
#: names at the ends of lines keep this distance
_LINE_HEIGHT: Final = 15


class Picture(NamedTuple):
    """A chart: its file, its title, and the costs with the factor that gives all of them one unit."""

    name: str
    title: str
    costs: Mapping[str, float]


PICTURES: Final = (
    Picture(
        "scaling-cluster",
        "Work for all brokers, seconds of CPU",
        {
            "snapshot, s": 1.0,
            "load, s": 1.0,
            "rolling restart, s": 1.0,
            "reassignment of all partitions, s": 1.0,
            "failure of a zone, s": 1.0,
            "plan for three new brokers, s": 1.0,
        },
    ),
    Picture(
        "scaling-broker",
        "Work for one broker, milliseconds of CPU",
        {
            "failure of a broker, s": 1e3,
            "return of a broker, s": 1e3,
            "restart of a broker, s": 1e3,
            "decision of self-healing, s": 1e3,
            "placement of a new partition, µs": 1e-3,
            "heartbeat, µs": 1e-3,
        },
    ),
)


def curves(picture: Picture, results: Mapping[int, Mapping[str, float]]) -> str:
    """The chart as SVG."""
    lines = {
        name.rpartition(",")[0]: [
            (size, values[name] * factor)
            for size, values in sorted(results.items())
            if values.get(name, 0) > 0
        ]
        for name, factor in picture.costs.items()
    }
    points = [point for line in lines.values() for point in line]
    across = _Axis.over([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _Axis.over([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    drawn = [
        f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='white'/>",
        _text(8, 20, picture.title, bold=True),
    ]
    drawn += _grid(across, up)
    lowest: float = _HEIGHT
    ends = sorted(((up.at(line[-1][1]), name) for name, line in lines.items() if line), reverse=True)
    for y, name in ends:
        color = _PALETTE[list(lines).index(name) % len(_PALETTE)]
        path = " ".join(f"{across.at(size):.1f},{up.at(value):.1f}" for size, value in lines[name])
        drawn.append(f"<polyline points='{path}' fill='none' stroke='{color}' stroke-width='2'/>")
        lowest = min(y, lowest - _LINE_HEIGHT)
        drawn.append(_text(_WIDTH - _RIGHT + 8, lowest + 4, name, color=color))
    frame = f"width='{_WIDTH}' height='{_HEIGHT}' viewBox='0 0 {_WIDTH} {_HEIGHT}'"
    body = "\n".join(drawn)
    return f"<svg xmlns='http://www.w3.org/2000/svg' {frame} {STYLE}>\n{body}\n</svg>\n"


class _Axis(NamedTuple):
    """A logarithmic axis: powers of ten from `low` to `high` at places `start` to `end`."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def over(cls, values: list[float], start: float, end: float) -> _Axis:
        low, high = floor(log10(min(values))), ceil(log10(max(values)))
        return cls(low, max(high, low + 1), start, end)

    def at(self, value: float) -> float:
        return self.start + (log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def powers(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def _grid(across: _Axis, up: _Axis) -> list[str]:
    drawn = []
    for value in up.powers():
        y = up.at(value)
        drawn.append(f"<path d='M{across.start:.1f} {y:.1f}H{across.end:.1f}' stroke='#dddddd'/>")
        drawn.append(_text(across.start - 6, y + 4, f"{value:,g}", anchor="end"))
    for value in across.powers():
        x = across.at(value)
        drawn.append(f"<path d='M{x:.1f} {up.start:.1f}V{up.end:.1f}' stroke='#dddddd'/>")
        drawn.append(_text(x, up.start + 18, f"{value:,.0f}", anchor="middle"))
    drawn.append(_text((across.start + across.end) / 2, up.start + 36, "partitions", anchor="middle"))
    return drawn


def _text(
    x: float, y: float, text: str, *, bold: bool = False, anchor: str = "start", color: str = "black"
) -> str:
    weight = "bold" if bold else "normal"
    place = f"x='{x:.1f}' y='{y:.1f}' font-weight='{weight}' text-anchor='{anchor}' fill='{color}'"
    return f"<text {place}>{escape(text)}</text>"
