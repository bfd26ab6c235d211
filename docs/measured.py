"""Render measured numbers on the pages, from the results in the repository: the text between
`<!-- measured: NAME -->` and `<!-- measured: end -->`.

`python -m docs.measured` writes the pages; `make pages`, runs of the benchmarks, `make disasters` and
`make detectors`, too.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from bench import pipeline, pipeline_scale
from bench.charts import number
from bench.results import LATEST, load, together
from bench.scale.results import brokers_table, controller_table
from bench.scrape import DETAILS, asked
from disasters import report
from disasters.judge import Verdict
from docs import parts
from docs.parts import Parts, table
from penstock.telemetry.message import Message
from penstock.telemetry.simulate.run import Scenario, Simulation

__all__ = ["KIND", "PAGES", "PARTS", "rendered", "write"]

KIND = "measured"
ROOT = Path(__file__).resolve().parent.parent
_BEGIN = re.compile(r"<!-- measured: (?!end)[a-z-]+ -->")
PAGES = tuple(
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if _BEGIN.search(page.read_text(encoding="utf-8"))
)
_DETECTORS = ROOT / "docs" / "detectors.json"
_KAFKA = "Apache Kafka 4.3.1"
_SCRAPE_INTERVAL_S = 15
_MESSAGES_PER_PARTITION = 10_000
#: cores to plan for each core that the pipeline keeps busy: it also catches up after a restart
_HEADROOM = 2
_PORT = ("with the port", "without it")


def rendered(text: str) -> str:
    """The text of a page with the numbers of the newest results."""
    return parts.rendered(KIND, PARTS, text)


def write() -> None:
    """Render all pages that have measured numbers."""
    parts.write(KIND, PARTS, PAGES)


def _median(row: str, metric: str, contender: str = "penstock") -> str:
    return number(statistics.median(together(load(LATEST)).values[row][metric][contender]))


def _both(row: str, metric: str, unit: str) -> tuple[str, str]:
    return f"{_median(row, metric)} {unit}", f"{_median(row, metric, 'kafka')} {unit}"


def _verdicts(contender: str) -> dict[str, Verdict]:
    results = report.load(ROOT / "docs" / "disasters" / f"{contender}.json")
    return {result.name: result.verdict for result in results}


def _kept() -> tuple[str, str]:
    """Of the disasters that both systems had: after how many all data was there, perhaps after a refusal."""
    found = [_verdicts("penstock"), _verdicts("kafka")]
    both = found[0].keys() & found[1].keys()
    kept = [sum(verdicts[name].is_good for name in both) for verdicts in found]
    return f"{kept[0]} of {len(both)}", f"{kept[1]} of {len(both)}"


def _disasters() -> str:
    return str(len(_verdicts("penstock")))


def _reasons() -> str:
    """What is ahead of Kafka, each with what the number does not say."""
    hangs = _median("failover-silent", "stopped, worst")
    rows = [
        (
            "memory of an idle broker",
            *_both("start", "resident, idle", "MB"),
            "grows with partitions and connections ([planning](docs/planning.md))",
        ),
        (
            "start until the first answer",
            *_both("start", "first Metadata answer", "s"),
            "on an empty folder ([benchmarks](docs/benchmarks.md))",
        ),
        (
            "failover after `kill -9` of a leader",
            *_both("failover", "median", "s"),
            f"three brokers; {hangs} s if the leader hangs ([cluster](docs/cluster.md))",
        ),
        (
            "CPU per million messages of 1 KB",
            *_both("cluster-produce-1k", "CPU per million", "s"),
            "three replicas, `acks=all`; one event loop per broker ([cores](docs/cores.md))",
        ),
        (
            "disasters without harm",
            *_kept(),
            "those that both had: files removed, swapped, rolled back or flipped "
            "([storage](docs/storage.md#disasters))",
        ),
        (
            "a broker in a test",
            _fixture(),
            "none",
            "in the test's process, in memory ([testing](docs/testing.md))",
        ),
    ]
    return table(("", "Penstock", _KAFKA, "but"), rows)


def _fixture() -> str:
    return f"{_median('fixture', 'broker ready')} ms"


def _scrape() -> str:
    seconds, slice_ms = float(_median("scrape", "CPU per scrape")), _median("scrape", "longest slice")
    share = 100 * seconds / _SCRAPE_INTERVAL_S
    each = (
        f"{seconds * 1000:.0f} ms of CPU ({share:.2g} % of a core at one scrape per {_SCRAPE_INTERVAL_S} s)"
    )
    return f"{each}, in slices of at most {slice_ms} ms of CPU"


def _details() -> str:
    rows = [
        (
            f"`{detail}`" if detail else "all",
            f"{_median('scrape-details', f'size, {asked(detail)}')} MB",
            _median("scrape-details", f"samples, {asked(detail)}"),
        )
        for detail in DETAILS
    ]
    return table(("parameter", "size", "samples"), rows)


def _port_memory() -> str:
    with_port, without = (float(_median("metrics", f"resident, {which}")) for which in _PORT)
    return f"{with_port - without:.1f} MB"


def _partition_memory() -> str:
    return f"{_median('metrics', 'memory of 1,000 partitions, with the port')} MB"


def _beside() -> str:
    rows = [
        (what, *(f"{_median('beside', metric, contender)} ms" for contender in ("penstock", "kafka")))
        for what, metric in (
            ("nothing", "p99 alone"),
            ("a consumer that reads 1 GB which is on the disk only", "p99 beside a cold reader"),
            ("a compaction of 200 MB", "p99 beside a compaction"),
        )
    ]
    return table(("beside", "p99 of the acknowledgements", _KAFKA), rows)


def _pipeline_load() -> str:
    return f"{pipeline.SAMPLES_PER_S:,} samples/s of {pipeline.GPUS:,} GPUs"


def _pipeline_rate() -> str:
    return _median("pipeline", "samples/s")


@cache
def _message_bytes() -> int:
    """The mean size of a simulated message, before compression."""
    sizes: list[int] = []

    class Outlet:
        def send(self, messages: Iterable[Message]) -> None:
            sizes.extend(len(message.value) + len(message.key) for message in messages)

    scenario = Scenario(hosts=32, seed=1, start_ms=1_750_000_000_000, duration_s=10)
    Simulation(scenario, Outlet()).run(lambda _: True, lambda _: None)
    return round(statistics.mean(sizes))


def _message_size() -> str:
    return f"{_message_bytes()} bytes"


def _sizing() -> str:
    """What fleets need, by the CPU that the pipeline takes for a sample of a fleet of their size."""
    rows = []
    for gpus in pipeline_scale.GPUS:
        rate = gpus * pipeline_scale.FIELDS // pipeline_scale.INTERVAL_S
        busy = rate * float(_median(f"pipeline-{gpus}-gpus", "CPU per sample")) / 1e6
        cores = max(1, math.ceil(_HEADROOM * busy))
        # As many as cores that read, because a batch has one reading task for each.
        partitions = max(math.ceil(rate / _MESSAGES_PER_PARTITION), cores)
        fleet = f"{gpus:,} GPUs × {pipeline_scale.FIELDS} metrics every {pipeline_scale.INTERVAL_S} s"
        shown = (
            f"{rate:,}",
            number(rate * _message_bytes() / 1e6),
            str(partitions),
            f"{busy:.2g}",
            str(cores),
        )
        rows.append((fleet, *shown))
    return table(("fleet", "messages/s", "MB/s", "partitions", "cores kept busy", "cores to plan"), rows)


def _executor_memory() -> str:
    return f"{_median(f'pipeline-{pipeline_scale.GPUS[-1]}-gpus', 'memory of the executor')} MB"


def _freshness() -> str:
    p50, p99 = (_median("pipeline", f"freshness {percentile}") for percentile in ("p50", "p99"))
    return f"{p50} s (median) and {p99} s (p99)"


def _failover() -> str:
    """A killed process closes its connections; one that hangs is noticed by a timeout."""
    hangs = float(_median("failover-silent", "cut off, worst"))
    return f"{_median('failover', 'median')} s (median) after a kill, {hangs:g} s (worst) if it hangs"


def _silent_leader() -> str:
    return f"{float(_median('failover-silent', 'cut off, worst')):g} s"


def _killed() -> str:
    return f"{_median('failover', 'median')} s, at most {_median('failover', 'worst')} s"


def _roll() -> str:
    """How late acknowledgements are while brokers are restarted one after the other."""
    columns = {"the roll": "s", "p99": "ms", "worst": "ms"}
    rows = [
        (name, *(f"{_median('roll', metric, each)} {unit}" for metric, unit in columns.items()))
        for name, each in (("Penstock", "penstock"), (_KAFKA, "kafka"))
    ]
    return table(("", "the roll of three brokers", "late acknowledgements, p99", "worst"), rows)


def _detectors() -> str:
    """Faults that the rules find, and alerts that a fault explains."""
    results = json.loads(_DETECTORS.read_text(encoding="utf-8"))
    rows = [(name, *map(str, score)) for name, score in results["classes"].items()]
    return table(("class", "found", "of faults", "right", "of alerts"), rows)


def _handshake() -> str:
    ours, kafkas = _both("tls-handshakes", "CPU per handshake", "ms")
    return f"{ours} of CPU (Apache Kafka: {kafkas})"


PARTS: Parts = {
    "reasons": _reasons,
    "disasters": _disasters,
    "fixture": _fixture,
    "scrape": _scrape,
    "details": _details,
    "port-memory": _port_memory,
    "partition-memory": _partition_memory,
    "beside": _beside,
    "pipeline-load": _pipeline_load,
    "pipeline-rate": _pipeline_rate,
    "message-size": _message_size,
    "sizing": _sizing,
    "executor-memory": _executor_memory,
    "freshness": _freshness,
    "failover": _failover,
    "handshake": _handshake,
    "silent-leader": _silent_leader,
    "killed": _killed,
    "roll": _roll,
    "detectors": _detectors,
    "scale": controller_table,
    "scale-brokers": brokers_table,
}


if __name__ == "__main__":
    write()
