"""Bar charts as SVG: groups of horizontal bars, one bar per contender, each with its number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, LABELS, NUMBERS, BAR, GAP, HEAD = 760, 250, 90, 16, 10, 56
COLORS = ("#2563a8", "#d08a2e", "#4a9c6d", "#8a5fa8")
STYLE = "font-family='Helvetica, Arial, sans-serif' font-size='12'"


class Group(NamedTuple):
    label: str
    values: Mapping[str, float]
    """By contender."""


def bars(
    title: str, groups: Sequence[Group], contenders: Sequence[str], shown: Callable[[float], str]
) -> str:
    """A chart whose bars share one linear scale from zero."""
    longest = max(value for group in groups for value in group.values.values())
    scale = (WIDTH - LABELS - NUMBERS) / longest
    drawn = [_text(8, 20, title, "bold"), *_legend(contenders)]
    y = HEAD
    for group in groups:
        drawn.append(_text(LABELS - 8, y + BAR * len(group.values) / 2 + 4, group.label, anchor="end"))
        for contender, value in group.values.items():
            color = COLORS[contenders.index(contender) % len(COLORS)]
            length = max(1.0, value * scale)
            drawn.append(
                f"<rect x='{LABELS}' y='{y}' width='{length:.1f}' height='{BAR - 2}' fill='{color}'/>"
            )
            drawn.append(_text(LABELS + length + 6, y + BAR - 5, shown(value)))
            y += BAR
        y += GAP
    frame = f"width='{WIDTH}' height='{y}' viewBox='0 0 {WIDTH} {y}'"
    background = f"<rect width='{WIDTH}' height='{y}' fill='white'/>"
    body = "\n".join([background, *drawn])
    return f"<svg xmlns='http://www.w3.org/2000/svg' {frame} {STYLE}>\n{body}\n</svg>\n"


def _legend(contenders: Sequence[str]) -> list[str]:
    drawn = []
    for index, contender in enumerate(contenders):
        x = LABELS + 120 * index
        drawn.append(f"<rect x='{x}' y='32' width='12' height='12' fill='{COLORS[index % len(COLORS)]}'/>")
        drawn.append(_text(x + 18, 42, contender))
    return drawn


def _text(x: float, y: float, text: str, weight: str = "normal", anchor: str = "start") -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' font-weight='{weight}' text-anchor='{anchor}'"
    return f"<text {place}>{escape(text)}</text>"
