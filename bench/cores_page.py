"""The measured part of `docs/cores.md`, between two comments; the rest of the page is written by hand."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from bench.charts import number
from bench.cores_load import FULL_BATCHES, LOADS, SMALL_BATCHES, Load
from bench.results import Run

__all__ = [
    "AT_FULL_SPEED",
    "BEGIN",
    "COUNTS",
    "END",
    "IDLE",
    "LIMITED",
    "PAGE",
    "SHARE",
    "alone_of",
    "cost_of",
    "section",
    "write",
]

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cores.md"
BEGIN, END = "<!-- measured: begin (make cores-cost) -->", "<!-- measured: end -->"
IDLE, AT_FULL_SPEED = "idle", "limited"
COUNTS = (1, 2, 4, 8, 16)
LIMITED = (1, 2, 4, 8)
SHARE = 0.06
"""Of a core, for each broker."""
GROWTH_LIMIT = 1.15
LEAST_OF_N = 0.85
WIDTH = 140


def cost_of(load: Load) -> str:
    """The name of the row with the cost of a load."""
    return f"cost-{load.name}"


def alone_of(load: Load) -> str:
    """The name of the row with the cost of a part of a load on one broker."""
    return f"alone-{load.name}"


def write(runs: Sequence[Run]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{section(runs)}{after}", encoding="utf-8")


def section(runs: Sequence[Run]) -> str:
    """The text from one comment to the other, both included. The newest run that has a part counts."""
    lines = [BEGIN]
    for row, part in ((cost_of(FULL_BATCHES), _cost), (AT_FULL_SPEED, _limited)):
        measured = [run for run in runs if row in run.values]
        if measured:
            lines += [*_circumstances(measured[-1]), "", *part(measured[-1]), ""]
    failures = [failure for run in runs for failure in dict.fromkeys(run.failures)]
    if failures:
        lines += ["Failed, so that a round is missing above:", "", *(f"- {each}" for each in failures), ""]
    if len(lines) == 1:
        lines += ["Not measured yet: `make cores-cost` does it, on a machine without other work.", ""]
    return "\n".join([*lines[:-1], END])


def _circumstances(run: Run) -> Iterator[str]:
    rounds = f"{run.rounds} round{'s' * (run.rounds > 1)} of {run.scale:g} s, best and median"
    yield from wrap(f"Measured on {run.date} at commit {run.commit}, {run.machine}; {rounds}.", WIDTH)
    if run.circumstances:
        yield from wrap(f"**{run.circumstances}**", WIDTH)


def _values(run: Run, row: str, brokers: int, contender: str = "penstock") -> list[float]:
    return run.values.get(row, {}).get(str(brokers), {}).get(contender, [])


def _cost(run: Run) -> Iterator[str]:
    yield from wrap(
        "The same Produce requests from a raw client on more and more brokers: 1-KB messages to 16 "
        "partitions, each with a connection of its own, evenly spaced. "
        f"{_described(FULL_BATCHES)}, as of a producer under load; "
        f"{_described(SMALL_BATCHES)}. CPU is that of all brokers and the supervisor, in seconds per million "
        "messages; *idle* is what they take without any load. Each of N brokers has an Nth of the load. The "
        "other columns are for one broker, or one Kafka, alone on the machine with an Nth of the load "
        "(Kafka may be late with all of it):",
        WIDTH,
    )
    for load in LOADS:
        yield from ("", *_cost_table(run, load))


def _cost_table(run: Run, load: Load) -> Iterator[str]:
    size = _size(load)
    yield (
        f"| N | idle, cores | N brokers, all of the load in {size} | × 1 "
        f"| one broker, 1/N of the load in {size} | × 1 | one Kafka, 1/N of the load in {size} | × 1 |"
    )
    yield "|--:|--:|--:|--:|--:|--:|--:|--:|"
    whole, kafka_whole = _values(run, cost_of(load), 1), _values(run, alone_of(load), 1, "kafka")
    for brokers in COUNTS:
        idle, many = _values(run, IDLE, brokers), _values(run, cost_of(load), brokers)
        alone, kafka = _alone(run, load, brokers), _values(run, alone_of(load), brokers, "kafka")
        cells = [f"{min(idle):.4f}" if idle else "not measured"]
        for values, one in ((many, whole), (alone, whole), (kafka, kafka_whole)):
            cells += [_best(values, min), f"{min(values) / min(one):.2f}" if values and one else ""]
        yield f"| {brokers} | {' | '.join(cells)} |"
    most = COUNTS[-1]
    many = _values(run, cost_of(load), most)
    against_all, against_alone = _growth(many, whole), _growth(many, _alone(run, load, most))
    yield ""
    yield from wrap(
        f"Target: at most {GROWTH_LIMIT} × at {most}: {against_all} against one broker with all of the load; "
        f"{against_alone} against one broker with as much load as each of the {most}.",
        WIDTH,
    )


def _alone(run: Run, load: Load, parts: int) -> list[float]:
    """The cost of one broker with a part of the load."""
    return _values(run, alone_of(load) if parts > 1 else cost_of(load), parts)


def _growth(values: list[float], base: list[float]) -> str:
    if not (values and base):
        return "not measured"
    growth = min(values) / min(base)
    return f"{_verdict(growth <= GROWTH_LIMIT)} ({growth:.2f} ×)"


def _described(load: Load) -> str:
    return f"{load.messages_per_second:,} messages/s in batches of {_size(load)}"


def _size(load: Load) -> str:
    return (
        f"{load.batch_bytes // 1000} KB" if load.batch_bytes < 1_000_000 else f"{load.batch_bytes / 1e6:g} MB"
    )


def _limited(run: Run) -> Iterator[str]:
    yield from wrap(
        f"Throughput of Produce requests from a raw client, in batches of {_size(SMALL_BATCHES)}: as many as "
        f"the brokers answer. Each broker is held to {SHARE:.0%} of a core by a cgroup. "
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
        yield f"| {brokers} | {_best(values, max)} | {share} | {_best(kafka, max)} |"
    yield ""
    is_met = len(shares) == len(LIMITED) and min(shares) >= LEAST_OF_N
    yield f"Target: at least {LEAST_OF_N} × N: {_verdict(is_met)}."


def _best(values: list[float], best: Callable[[list[float]], float]) -> str:
    return f"{number(best(values))} ({number(statistics.median(values))})" if values else "not measured"


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "missed"
