"""The table, on the terminal and as `docs/benchmarks.md`: best and median per contender, and the target."""

from __future__ import annotations

import os
import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import cluster, latency
from bench.charts import charts, number
from bench.results import INTERPRETERS_ROW, Run, together
from bench.rows import ROWS
from bench.table import Metric, Row
from bench.throughput import BROKER_CORES, CLIENT_CORES, PRODUCER

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
PICTURES = PAGE.with_suffix("")
BUSY = 0.9
"""The share of its cores from which on a process counts as busy, by the clock ticks of `/proc`."""

FEWER = "two of the others, two to six of those on three brokers, one of those that take minutes"
INTRODUCTION = """\
# Benchmarks

`make bench` prints and writes this page. With `AGAINST=kafka`, Apache Kafka 4.3.1 (KRaft combined mode,
1-GB heap, one discarded warm-up round) runs in alternating rounds. Load comes from `bench/load.c` over
librdkafka and shares the machine's cores with the broker. CPU is the broker's, user and system; for
three brokers it is the sum. Each cell has the best round, then the median. The column *target* compares
best with best. Rows on three brokers start a cluster each, warm it up with load that does not count, and
run alone. [The comparison](comparison.md) has lower rates for the same broker, because its clients are in
Python, and one client process is the limit there.
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of one row, ready to show."""

    row: Row
    metric: Metric
    cells: dict[str, str]
    target: str


def lines(run: Run) -> Iterator[Line]:
    for row in ROWS:
        measured = run.values.get(row.name, {})
        for metric in row.metrics:
            if metric.name in measured:
                values = measured[metric.name]
                cells = {name: _cell(metric, values[name]) for name in values}
                yield Line(row, metric, cells, _target(metric, values))


def _cell(metric: Metric, values: list[float]) -> str:
    return f"{number(metric.best(values))} ({number(statistics.median(values))})"


def _target(metric: Metric, values: dict[str, list[float]]) -> str:
    """The target in words, with the verdict where it can be judged."""
    sign = "≥" if metric.higher_is_better else "≤"
    if metric.limit is not None:
        words = f"{sign} {number(metric.limit)}"
    elif metric.times_kafka is not None:
        words = f"{sign} {metric.times_kafka:g} × Kafka"
    else:
        return ""
    goal = metric.goal(_best(metric, values, "kafka"))
    if goal is None or "penstock" not in values:
        return words
    return f"{words}: {'met' if metric.met(metric.best(values['penstock']), goal) else 'missed'}"


def _best(metric: Metric, values: dict[str, list[float]], name: str) -> float | None:
    return metric.best(values[name]) if name in values else None


def write(runs: Sequence[Run], interpreters: Sequence[Run]) -> None:
    """The page and its pictures."""
    PICTURES.mkdir(exist_ok=True)
    for name, _, drawn in charts(together(runs)):
        (PICTURES / f"{name}.svg").write_text(drawn)
    PAGE.write_text(page(runs, interpreters))


def terminal(run: Run) -> str:
    table = [("row", "metric", *run.contenders, "target")]
    for line in lines(run):
        cells = (line.cells.get(name, "–") for name in run.contenders)
        table.append((line.row.name, line.metric.label, *cells, line.target))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in table)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def page(runs: Sequence[Run], interpreters: Sequence[Run] = ()) -> str:
    run = together(runs)
    settings = ", ".join(f"`{key}={value}`" for key, value in PRODUCER.items())
    found = list(lines(run))
    parts = [
        INTRODUCTION,
        *_circumstances(runs),
        "- Settings: the defaults of the commit that measured a row, but for what the row names; "
        f"client {settings}",
        "",
        "| row | metric | " + " | ".join(run.contenders) + " | target |",
        "|---|---|" + "--:|" * len(run.contenders) + "---|",
    ]
    for line in found:
        cells = " | ".join(line.cells.get(name, "–") for name in run.contenders)
        parts.append(f"| {line.row.what} | {line.metric.label} | {cells} | {line.target} |")
    for section in (
        _latency(run),
        _warmth(run),
        _limits(run),
        _misses(found),
        _gaps(run),
        _interpreters(interpreters),
        _pictures(run),
    ):
        parts += ["", *section] if section else []
    return "\n".join(parts) + "\n"


def _interpreters(runs: Sequence[Run]) -> list[str]:
    """What the same broker costs on several interpreters: the best of the rounds."""
    return [line for run in runs for line in _on_interpreters(run)]


def _on_interpreters(run: Run) -> list[str]:
    explained = (
        "`python -m bench.interpreters /a/bin/python3.11 /b/bin/python3.13` (environments that have the "
        "package) alternates rounds between brokers on several interpreters, with load from raw sockets in "
        f"batches of 100 KB. Broker CPU, best and median of {run.rounds} rounds, at commit {_commit(run)}. "
        f"{run.circumstances}"
    )
    measured = run.values[INTERPRETERS_ROW]
    rows = [
        f"| {python} | {' | '.join(_lowest(by[python]) for by in measured.values())} |"
        for python in run.contenders
    ]
    head = ["| Python | " + " | ".join(measured) + " |", "|---|" + "--:|" * len(measured)]
    return ["## Newer interpreters", "", *textwrap.wrap(explained, 110), "", *head, *rows]


def _lowest(values: list[float]) -> str:
    return f"{number(min(values))} ({number(statistics.median(values))})"


def _circumstances(runs: Sequence[Run]) -> Iterator[str]:
    """The settings of most rows, and the different ones with their rows."""
    for label, describe in CIRCUMSTANCES.items():
        rows: dict[str, list[str]] = {}
        for run in runs:
            rows.setdefault(describe(run), []).extend(
                f"`{row.name}`" for row in ROWS if row.name in run.values
            )
        most = max(rows, key=lambda text: len(rows[text]))
        yield f"- {label}: {most}"
        for text, names in rows.items():
            if text != most and names:
                yield f"- {label} of {', '.join(names)}: {text}"


def _versions(run: Run) -> str:
    return ", ".join(f"{name} {number}" for name, number in run.versions.items())


def _commit(run: Run) -> str:
    return f"{run.commit}, measured on {run.date}" if run.date else run.commit


CIRCUMSTANCES: dict[str, Callable[[Run], str]] = {
    "Machine": lambda run: run.machine,
    "Versions": _versions,
    "Commit": _commit,
    "Record validation": lambda run: (
        f"Kafka checks every record; ours is `penstock.record.validation={run.record_validation}`"
    ),
    "Rounds": lambda run: f"{run.rounds} of each row with a target, {FEWER}",
}


def _latency(run: Run) -> list[str]:
    """How to read the latency rows."""
    if not any(row.name in run.values for row in latency.ROWS):
        return []
    explained = (
        "End to end is from the producer's call to the consumer's, in one process over librdkafka, the same "
        "on both sides. In the client's queue a message waits for its batch, the linger included, before the "
        "broker can know of it; the line after it is the rest. The Produce round trip is from a "
        "request's last byte sent to its answer."
    )
    shown = list(_floors(run))
    if shown:
        explained += (
            " `bench/echo.c` is a broker that takes next to no time: one thread of C that hands on "
            "messages in memory. The latency of the same client with it, in the same rounds, is a lower "
            "bound."
        )
        head = ["| target | at most, ms | a broker that only echoes, ms | |", "|---|--:|--:|---|"]
        shown = ["", *head, *shown]
    return ["## What the client library adds to latency", "", *textwrap.wrap(explained, 110), *shown]


def _floors(run: Run) -> Iterator[str]:
    """Each target of a latency beside the least that there can be, where both were measured."""
    for row in latency.ROWS:
        measured = run.values.get(row.name, {})
        for metric in row.metrics:
            floors = measured.get(latency.floor_of(metric.name))
            goal = metric.goal(_best(metric, measured.get(metric.name, {}), "kafka"))
            if floors is not None and goal is not None:
                least = metric.best([value for values in floors.values() for value in values])
                verdict = "within reach" if metric.met(least, goal) else "no broker can meet it"
                yield f"| `{row.name}`, {metric.name} | {number(goal)} | {number(least)} | {verdict} |"


def _warmth(run: Run) -> list[str]:
    """How to read the rows of clusters."""
    if "kafka" not in run.contenders or not any(row.name in run.values for row in cluster.ROWS):
        return []
    explained = (
        "Three virtual machines share two cores, and their just-in-time compilers take a good part of both. "
        f"Before what counts, the same load goes to either side for {cluster.WARM_S:.0f} s, and on until two "
        f"passes in a row cost the same within {cluster.WARM_WITHIN:.0%}, {cluster.WARM_MOST_S:.0f} s at "
        "most. An idempotent client of librdkafka takes more processor time for a message than a plain one, "
        "on the cores that it shares with the brokers: both have a row."
    )
    return ["## How warm the clusters are", "", *textwrap.wrap(explained, 110)]


def _gaps(run: Run) -> list[str]:
    """The rows that were not measured, each with the reason."""
    shown = [f"- {failure}" for failure in run.failures]
    if len(run.contenders) > 1:
        shown += [f"- `{row.name}` on others than Penstock: {row.alone}." for row in ROWS if row.alone]
    return ["## Not measured", "", *shown] if shown else []


def _limits(run: Run) -> list[str]:
    """The limit of rows at full speed: the broker, the client or the machine."""
    shown = []
    cores = len(os.sched_getaffinity(0))
    for row in ROWS:
        measured = run.values.get(row.name, {})
        if CLIENT_CORES.name in measured:
            for name, used in measured[BROKER_CORES.name].items():
                broker, client = statistics.median(used), statistics.median(measured[CLIENT_CORES.name][name])
                limited_by = limit(broker, client, cores, row.brokers)
                shown.append(f"| {row.name} | {name} | {broker:.2f} | {client:.2f} | {limited_by} |")
    if not shown:
        return []
    explained = (
        "The machine is the limit when brokers and client together fill its cores, the broker when its event "
        "loop (Penstock: one core) has no time left, otherwise the client: a faster broker would not show."
    )
    head = ["| row | broker | its cores | the client's cores | limit |", "|---|---|--:|--:|---|"]
    return ["## What limits the throughput", "", *textwrap.wrap(explained, 110), "", *head, *shown]


def limit(broker: float, client: float, cores: int, brokers: int = 1) -> str:
    """The side that kept a throughput from being higher, from the cores that each kept busy."""
    if broker + client > BUSY * cores:
        return "the machine"
    return "the broker" if broker > BUSY * brokers else "the client"


def _misses(found: list[Line]) -> list[str]:
    missed = {line.row.name: line.row for line in found if line.target.endswith("missed")}
    if not missed:
        return []
    shown = [f"- `{row.name}`: {row.where or 'not explained yet'}" for row in missed.values()]
    return ["## Where the time goes in the rows that miss", "", *shown]


def _pictures(run: Run) -> list[str]:
    links = [f"![{title}]({PICTURES.name}/{name}.svg)" for name, title, _ in charts(run)]
    return ["## Pictures", "", "Best rounds.", "", *links] if links else []
