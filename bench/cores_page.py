"""The measured part of `docs/cores.md`, between two comments; the rest of the page is written by hand."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from bench.charts import number
from bench.cores_load import MESSAGES_PER_BATCH
from bench.results import Run

__all__ = [
    "AT_FULL_SPEED",
    "BEGIN",
    "COST",
    "COUNTS",
    "END",
    "LIMITED",
    "PAGE",
    "RATE",
    "SHARE",
    "section",
    "write",
]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cores.md"
BEGIN, END = "<!-- measured: begin (make cores-cost) -->", "<!-- measured: end -->"
COST, AT_FULL_SPEED = "cost", "limited"
COUNTS = (1, 2, 4, 8, 16)
LIMITED = (1, 2, 4, 8)
RATE = 4000
"""Requests a second of the fixed load."""
SHARE = 0.06
"""Of a core, for each broker."""
GROWTH_LIMIT = 1.15
LEAST_OF_N = 0.85
WIDTH = 140


def write(runs: Sequence[Run]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{section(runs)}{after}", encoding="utf-8")


def section(runs: Sequence[Run]) -> str:
    """The text from one comment to the other, both included. Only the newest run counts."""
    if not runs:
        return (
            f"{BEGIN}\nNot measured yet: `make cores-cost` does it, on a machine without other work.\n{END}"
        )
    run = runs[-1]
    return "\n".join([BEGIN, *_circumstances(run), "", *_cost(run), "", *_limited(run), END])


def _circumstances(run: Run) -> Iterator[str]:
    rounds = f"{run.rounds} round{'s' * (run.rounds > 1)} of {run.scale:g} s, best and median"
    yield from wrap(f"Measured on {run.date} at commit {run.commit}, {run.machine}; {rounds}.", WIDTH)
    if run.circumstances:
        yield from wrap(f"**{run.circumstances}**", WIDTH)


def _values(run: Run, row: str, brokers: int, contender: str = "penstock") -> list[float]:
    return run.values.get(row, {}).get(str(brokers), {}).get(contender, [])


def _cost(run: Run) -> Iterator[str]:
    messages = RATE * MESSAGES_PER_BATCH
    yield from wrap(
        f"The same load, {messages:,} messages/s of 1 KB in batches of {MESSAGES_PER_BATCH} to 16 "
        "partitions, on more and more brokers. CPU is that of all brokers and the supervisor:",
        WIDTH,
    )
    yield ""
    yield "| brokers | CPU per million, s | × one broker |"
    yield "|--:|--:|--:|"
    one = _values(run, COST, 1)
    growth = 0.0
    for brokers in COUNTS:
        values = _values(run, COST, brokers)
        if values and one:
            growth = min(values) / min(one)
            median = number(statistics.median(values))
            yield f"| {brokers} | {number(min(values))} ({median}) | {growth:.2f} |"
        else:
            growth = 0.0
            yield f"| {brokers} | not measured | |"
    yield ""
    verdict = _verdict(0 < growth <= GROWTH_LIMIT)
    yield f"Target: at most {GROWTH_LIMIT} × at {COUNTS[-1]}: {verdict}."


def _limited(run: Run) -> Iterator[str]:
    yield from wrap(
        f"Each broker is held to {SHARE:.0%} of a core by a cgroup, and gets as much load as it takes. "
        "Apache Kafka, one JVM that was warmed up at full speed, is held to the sum:",
        WIDTH,
    )
    yield ""
    yield "| brokers | messages/s | of N × one broker | Kafka with the sum, messages/s |"
    yield "|--:|--:|--:|--:|"
    one = _values(run, AT_FULL_SPEED, 1)
    shares = []
    for brokers in LIMITED:
        values, kafka = _values(run, AT_FULL_SPEED, brokers), _values(run, AT_FULL_SPEED, brokers, "kafka")
        if values and one:
            shares.append(max(values) / max(one) / brokers)
        share = f"{shares[-1]:.2f}" if values and one else ""
        yield f"| {brokers} | {_best(values)} | {share} | {_best(kafka)} |"
    yield ""
    is_met = len(shares) == len(LIMITED) and min(shares) >= LEAST_OF_N
    yield f"Target: at least {LEAST_OF_N} × N: {_verdict(is_met)}."


def _best(values: list[float]) -> str:
    return f"{number(max(values))} ({number(statistics.median(values))})" if values else "not measured"


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "missed"
