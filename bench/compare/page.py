"""`docs/comparison.md`, rendered from the results: `page(load(COMPARED), load(SEMANTICS))` is its text.

Rows that Penstock loses are listed like all others, and once more in a section of their own.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.charts import number
from bench.compare.choosing import DECLARED, TITLES, choosing
from bench.compare.classes import CLASSES, CONTENDERS, DurabilityClass
from bench.compare.semantics.section import section
from bench.compare.workloads import LOSS, ROWS, RowSpec
from bench.results import SEMANTICS, Run, load, together
from bench.table import Metric

__all__ = ["PAGE", "Line", "lines", "page", "terminal", "write"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "comparison.md"
OURS = "penstock"
CLOSE = 1.03
"""Differences below this factor are noise, and neither side is called the better one."""

INTRODUCTION = """\
<!-- Rendered by `make compare` from bench/results/compare.json; edit bench/compare, not this page. -->
# Penstock beside other message systems

`make compare` measures and writes this page (`QUICK=1` for a small run, `CLASSES=…`, `ROWS=…` and `ONLY=…`
for parts). All systems run on the same machine with the same loads, in turn. There is a table for each class
of durability, and no table mixes two ([decision](adr/0045-classes-of-durability.md)). Each cell has the best
round, then the median. Bold is the best by more than 3 %. [SQS and SNS](#semantics-of-sqs-and-sns) are not
measured: a table has what was observed with their emulators.

Load comes from each project's recommended Python client, in one process, which shares the machine's cores
with the servers. confluent-kafka is C under a thin layer; nats-py, aio-pika and rstream are Python on uvloop;
redis-py parses in C. So *messages/s* compares a server with its client, and in many rows the client is the
limit. *Server CPU per million* is what the server itself costs, and *client CPU per million* what an
application pays. [The benchmarks](benchmarks.md) drive brokers with a client in C and therefore have higher
rates. Each system has one ordered log or queue: one partition, one stream, one queue.

The three servers of a cluster share the two cores, too, and are started anew in each round. Kafka's latencies
of seconds in the classes with three servers are those of three young JVMs on two cores, in spite of a
discarded round before. They say nothing about a cluster that has run for long on machines of its own.

- *batched*: the client may have thousands of messages without acknowledgement;
- *one by one*: the next message is sent, or taken, when the last one is acknowledged, or committed. What a
  consumer gets for that differs: in Kafka's protocol a commit is a record, as durable as the class; NATS
  answers an acknowledgement; RabbitMQ answers neither acknowledgements nor stored offsets; Valkey writes its
  acknowledgements to the append-only file;
- *work queue*: a worker takes up to 100 messages at a time, or what its library fetches, and acknowledges
  each (a share group in Kafka's protocol);
- *end to end*: from the time at which a message was due to its arrival at a second process. A sender that is
  late does not shift the later messages, so nothing is omitted while a server stands still;
- *`kill -9`*: all servers are killed under load, once, and started again. Lost are messages that were
  acknowledged and are not there;
- *power failure*: the same on a disk that forgets everything that was not synced (`lab/volatile_disk.py`),
  the worst case of a power failure;
- –: the system has nothing for this row, or the measurement failed ([reasons](#not-measured)).
"""


class Line(NamedTuple):
    """One metric of one row in one class, ready to show."""

    durability: DurabilityClass
    row: RowSpec
    metric: Metric
    values: Mapping[str, list[float]]
    sent: Mapping[str, list[float]]
    """What was acknowledged, for a line of lost messages; else empty."""

    def best(self, contender: str) -> float:
        """The best round; of lost messages their share of those acknowledged, in the worst round."""
        values = self.values[contender]
        if not self.sent:
            return self.metric.best(values)
        return max(lost / sent for lost, sent in zip(values, self.sent[contender], strict=True))

    def winner(self) -> str | None:
        """The contender that is better than all others by more than noise; None if there is none."""
        if len(self.values) < 2:
            return None
        first, second = sorted(self.values, key=self.best, reverse=self.metric.higher_is_better)[:2]
        return first if self._factor(first, second) > CLOSE else None

    def factor(self, contender: str, other: str) -> float:
        """How many times better the contender is."""
        return self._factor(contender, other)

    def _factor(self, contender: str, other: str) -> float:
        high, low = self.best(contender), self.best(other)
        if not self.metric.higher_is_better:
            high, low = low, high
        return high / low if low else float("inf") if high else 1.0


def lines(run: Run) -> Iterator[Line]:
    """The measured lines, class by class."""
    for durability in CLASSES:
        for row in ROWS:
            measured = run.values.get(durability.row(row.name), {})
            for metric in row.metrics:
                values = measured.get(metric.name, {})
                sent = measured.get(LOSS[0].name, {}) if metric.name == LOSS[1].name else {}
                if values:
                    ordered = {name: values[name] for name in _ordered(values)}
                    yield Line(durability, row, metric, ordered, sent)


def _ordered(names: Mapping[str, object]) -> list[str]:
    return [name for name in CONTENDERS if name in names]


def write(runs: Sequence[Run]) -> None:
    PAGE.write_text(page(runs, load(SEMANTICS)), encoding="utf-8")


def terminal(run: Run) -> str:
    shown = []
    for line in lines(run):
        cells = "  ".join(f"{name} {_cell(line.metric, line.values[name])}" for name in line.values)
        shown.append(f"{line.durability.row(line.row.name)}, {line.metric.label}: {cells}")
    return "\n".join(shown)


def page(runs: Sequence[Run], semantics: Sequence[Run] = ()) -> str:
    """The text, with the measured runs and the last run of the scenarios."""
    run = together(runs)
    found = list(lines(run))
    parts = [INTRODUCTION, "Measured:", "", *_circumstances(runs)]
    for durability in CLASSES:
        parts += ["", *_class(run, durability, [line for line in found if line.durability is durability])]
    chosen = choosing(lambda contender: _won(found, contender))
    parts += ["", *_losses(found), "", *section(semantics), "", *_missing(run), "", chosen]
    return "\n".join(parts) + "\n"


def _circumstances(runs: Sequence[Run]) -> Iterator[str]:
    for run in reversed(runs):
        rows = "" if len(runs) == 1 else f"{len(run.values)} rows: "
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        rounds = f"{run.rounds} round{'s' * (run.rounds > 1)}"
        yield f"- {rows}commit {run.commit}, measured on {run.date}, {rounds}"
        yield f"- {run.machine}; {versions}"
        if run.circumstances:
            yield f"- **{run.circumstances}**"


def _class(run: Run, durability: DurabilityClass, found: Sequence[Line]) -> Iterator[str]:
    yield f"## {durability.title}"
    yield ""
    yield from textwrap.wrap(durability.meaning, 110)
    yield ""
    yield "| system | settings | declared by the client |"
    yield "|---|---|---|"
    for name in durability.contenders:
        settings = ", ".join(f"`{key}={value}`" for key, value in durability.settings[name].items())
        declared = DECLARED[name].format(nodes=durability.nodes)
        yield f"| {TITLES[name]} | {settings or 'as shipped'} | {declared} |"
    yield ""
    columns = [name for name in durability.contenders if any(name in line.values for line in found)]
    if columns:
        yield "| row | metric | " + " | ".join(TITLES[name] for name in columns) + " |"
        yield "|---|---|" + "--:|" * len(columns)
        yield from _table(found, columns)
    else:
        yield "Not measured yet."
    yield ""
    for name in durability.absent:
        yield f"- {TITLES[name]} is not in this class: {durability.absent[name]}."
    for name in durability.contenders:
        if name in run.absent:
            yield f"- {TITLES[name]} was not measured: {run.absent[name]}."


def _table(found: Sequence[Line], columns: Sequence[str]) -> Iterator[str]:
    for line in found:
        if line.metric.name == LOSS[0].name:
            continue  # It is shown with what was lost.
        cells = (_shown(line, name) for name in columns)
        yield f"| `{line.row.name}`: {line.row.what} | {_label(line)} | " + " | ".join(cells) + " |"


def _label(line: Line) -> str:
    return "lost of those acknowledged" if line.sent else line.metric.label


def _shown(line: Line, name: str) -> str:
    if name not in line.values:
        return "–"
    if line.sent:
        return f"{sum(line.values[name]):,.0f} of {sum(line.sent[name]):,.0f}"
    text = _cell(line.metric, line.values[name])
    return f"**{text}**" if line.winner() == name else text


def _cell(metric: Metric, values: list[float]) -> str:
    best, median = number(metric.best(values)), number(statistics.median(values))
    return f"{best} ({median})" if len(values) > 1 else best


def _losses(found: Sequence[Line]) -> Iterator[str]:
    """Where another system is better than Penstock."""
    yield "## Rows that Penstock loses"
    yield ""
    lost = [line for line in found if OURS in line.values and _is_lost(line)]
    if not lost:
        yield "None in this run."
        return
    yield "The best of the others, and how many times better it is. Differences below 3 % are not listed."
    yield ""
    yield "| class | row | metric | Penstock | better | |"
    yield "|---|---|---|--:|---|--:|"
    for line in lost:
        other = max((name for name in line.values if name != OURS), key=lambda name: line.factor(name, OURS))
        factor = line.factor(other, OURS)
        shown = f"× {factor:.3g}" if factor != float("inf") else "all"
        row = f"| {line.durability.name} | `{line.row.name}`: {line.row.what} | {_label(line)} "
        yield f"{row}| {_best(line, OURS)} | {TITLES[other]} {_best(line, other)} | {shown} |"


def _best(line: Line, contender: str) -> str:
    best = line.best(contender)
    return f"{number(100 * best)} %" if line.sent else number(best)


def _is_lost(line: Line) -> bool:
    others = [name for name in line.values if name != OURS]
    return line.metric.name != LOSS[0].name and any(line.factor(name, OURS) > CLOSE for name in others)


def _missing(run: Run) -> Iterator[str]:
    yield "## Not measured"
    yield ""
    yield "- The speed of SQS and SNS: they are services, and emulators say nothing about it."
    yield "- More load than a Python client can produce: a server whose client is the limit may carry more."
    for name in CONTENDERS:
        if name in run.absent:
            yield f"- {TITLES[name]}: {run.absent[name]}."
    for failure in dict.fromkeys(run.failures):
        yield f"- {failure}"


def _won(found: Sequence[Line], contender: str) -> list[str]:
    shown = []
    for durability in CLASSES:
        rows: dict[str, list[str]] = {}
        for line in found:
            if line.durability is durability and line.winner() == contender and line.row.metrics != LOSS:
                rows.setdefault(line.row.name, []).append(line.metric.name)
        if rows:
            listed = "; ".join(f"`{row}` ({', '.join(metrics)})" for row, metrics in rows.items())
            shown.append(f"- {durability.name}: {listed}")
    return shown
