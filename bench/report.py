"""The table, on the terminal and as `docs/benchmarks.md`: best and median per contender, and the ask."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.results import Run
from bench.rows import ROWS
from bench.table import Metric, Row

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"

INTRODUCTION = """\
# Benchmarks

Printed and written by `make bench`; with `AGAINST=kafka` Apache Kafka 4.3.1 (KRaft combined mode, 1-GB heap,
one discarded warm-up round) runs beside Penstock and rounds alternate. Load comes from `bench/load.c` over
librdkafka and shares the machine's cores with the broker. CPU is the broker's, user and system. Each cell is
the best round, then the median; asks are judged best against best.
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of one row, ready to show."""

    row: Row
    metric: Metric
    cells: dict[str, str]
    ask: str


def lines(run: Run) -> Iterator[Line]:
    for row in ROWS:
        measured = run.values.get(row.name, {})
        for metric in row.metrics:
            if metric.name in measured:
                values = measured[metric.name]
                cells = {name: _cell(metric, values[name]) for name in values}
                yield Line(row, metric, cells, _ask(metric, values))


def _cell(metric: Metric, values: list[float]) -> str:
    return f"{number(metric.best(values))} ({number(statistics.median(values))})"


def _ask(metric: Metric, values: dict[str, list[float]]) -> str:
    """The ask in words, with the verdict where it can be judged."""
    sign = "≥" if metric.higher_is_better else "≤"
    if metric.limit is not None:
        words = f"{sign} {number(metric.limit)}"
    elif metric.times_kafka is not None:
        words = f"{sign} {metric.times_kafka:g} × Kafka"
    else:
        return ""
    goal = metric.goal(metric.best(values["kafka"]) if "kafka" in values else None)
    if goal is None or "penstock" not in values:
        return words
    return f"{words}: {'met' if metric.met(metric.best(values['penstock']), goal) else 'missed'}"


def number(value: float) -> str:
    """Three figures are all that a noisy machine can mean."""
    if value >= 1000:
        digits = 10 ** (len(str(int(value))) - 3)
        return f"{round(value / digits) * digits:,.0f}"
    return f"{value:.3g}"


def terminal(run: Run) -> str:
    table = [("row", "metric", *run.contenders, "ask")]
    for line in lines(run):
        cells = (line.cells.get(name, "–") for name in run.contenders)
        table.append((line.row.name, line.metric.label, *cells, line.ask))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in table)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def page(run: Run) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    head = [
        INTRODUCTION,
        f"- Machine: {run.machine}",
        f"- Versions: {versions}",
        f"- Commit: {run.commit}; {run.rounds} rounds",
        "",
        "| row | metric | " + " | ".join(run.contenders) + " | ask |",
        "|---|---|" + "--:|" * len(run.contenders) + "---|",
    ]
    body = []
    for line in lines(run):
        cells = " | ".join(line.cells.get(name, "–") for name in run.contenders)
        body.append(f"| {line.row.what} | {line.metric.label} | {cells} | {line.ask} |")
    return "\n".join([*head, *body]) + "\n"
