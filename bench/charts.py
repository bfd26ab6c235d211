"""Which numbers of a run are worth a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bench.plot import Group, bars
from bench.results import Run
from bench.rows import ROWS
from bench.table import Metric, Row
from bench.throughput import PER_MILLION


def charts(run: Run) -> Iterator[tuple[str, str, str]]:
    """(name, title, SVG) of every chart that the run has numbers for."""
    for name, title, wanted in CHARTS:
        groups = [
            Group(f"{row.name}: {metric.name}" if several else row.name, _best(run, row, metric))
            for row, metric, several in _chosen(wanted)
            if metric.name in run.values.get(row.name, {})
        ]
        if groups:
            yield name, title, bars(title, groups, run.contenders, number)


def _chosen(wanted: Callable[[Row, Metric], bool]) -> Iterable[tuple[Row, Metric, bool]]:
    """Rows and metrics of a chart, and whether a row has more than one in it."""
    for row in ROWS:
        metrics = [metric for metric in row.metrics if wanted(row, metric)]
        for metric in metrics:
            yield row, metric, len(metrics) > 1


def _best(run: Run, row: Row, metric: Metric) -> dict[str, float]:
    return {name: metric.best(values) for name, values in run.values[row.name][metric.name].items()}


def number(value: float) -> str:
    """Three figures are all that a noisy machine can mean."""
    if value >= 1000:
        digits = 10 ** (len(str(int(value))) - 3)
        return f"{round(value / digits) * digits:,.0f}"
    return f"{value:.3g}"


CHARTS: tuple[tuple[str, str, Callable[[Row, Metric], bool]], ...] = (
    ("throughput", "Messages per second", lambda row, metric: metric.name == "messages/s"),
    (
        "cpu",
        "Broker CPU per million messages, seconds",
        lambda row, metric: metric.name == PER_MILLION,
    ),
    (
        "latency",
        "End to end, milliseconds",
        lambda row, metric: row.name.startswith("latency") and metric.name.startswith("p"),
    ),
    (
        "partitions",
        "Broker CPU per request by partitions, microseconds",
        lambda row, metric: row.name == "partitions" and " at " in metric.name,
    ),
    (
        "topics",
        "Broker CPU per request by topics, microseconds",
        lambda row, metric: row.name == "topics" and " at " in metric.name,
    ),
    (
        "segments",
        "Broker CPU per request by segments of a 1-GB log, microseconds",
        lambda row, metric: row.name == "segments" and " at " in metric.name,
    ),
)
