"""The results of `make scale` as a table: a row for each cost, a column for each size, and the growth."""

from __future__ import annotations

from collections.abc import Mapping
from math import log

from bench.scale.cluster import Size

__all__ = ["growth", "shown", "table"]


def growth(results: Mapping[int, Mapping[str, float]], name: str) -> float | None:
    """By which power of the number of partitions a cost grows between the last two sizes that have it."""
    known = [(size, values[name]) for size, values in sorted(results.items()) if values.get(name, 0) > 0]
    if len(known) < 2:
        return None
    (smaller, before), (larger, after) = known[-2:]
    return log(after / before) / log(larger / smaller)


def table(results: Mapping[int, Mapping[str, float]]) -> str:
    """A table in Markdown."""
    sizes = sorted(results)
    names = list(dict.fromkeys(name for size in sizes for name in results[size]))
    heads = [f"{size:,} partitions, {Size.of(size).brokers:,} brokers" for size in sizes]
    lines = [f"| | {' | '.join(heads)} | power |", f"|---|{'--:|' * (len(sizes) + 1)}"]
    for name in names:
        power = growth(results, name)
        cells = [shown(results[size].get(name)) for size in sizes]
        lines.append(f"| {name} | {' | '.join(cells)} | {'' if power is None else f'{power:.2f}'} |")
    return "\n".join(lines)


def shown(value: float | None) -> str:
    """Three figures; nothing for a value that was not measured."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
