"""Runs Kafka's share-group tools against Penstock and against Apache Kafka, and compares their output.

    make share-tools        # or: python -m differential.share_tools [--against penstock]

Member ids, hosts, times and rates differ between two runs on the same broker, so they are replaced first.
`DumpLogSegments` reads the log files of `__share_group_state` of the broker itself.
"""

from __future__ import annotations

import difflib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from differential.brokers import SETTINGS
from lab.apache_kafka import apache_kafka, tool
from lab.penstock import penstock
from lab.server import Server
from tools.arguments import Arguments

_GROUPS: Final = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
_CONSOLE: Final = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
_PERFORMANCE: Final = "org.apache.kafka.tools.ShareConsumerPerformance"
_VERIFIABLE: Final = "org.apache.kafka.tools.VerifiableShareConsumer"
_DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
_CONFIGS: Final = "kafka.admin.ConfigCommand"
_TIMEOUT_S: Final = 90.0
_RECORDS: Final = 20
_SETTINGS: Final = {**SETTINGS, "group.share.assignment.interval.ms": "0", "node.id": "1"}


class Step(NamedTuple):
    name: str
    run: Callable[[Server], str]


def _run(main_class: str, *arguments: str) -> str:
    """The output of a tool, without its log lines."""
    done = subprocess.run(
        [*tool(main_class), *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    lines += [line for line in done.stderr.splitlines() if line.startswith(("Error", "Processed"))]
    return "\n".join([*lines, f"exit {done.returncode}"])


def _groups(*arguments: str) -> Callable[[Server], str]:
    return lambda server: _settled(_run(_GROUPS, "--bootstrap-server", server.bootstrap, *arguments))


def _settled(text: str) -> str:
    """Replace what differs between two runs, and the width of columns."""
    text = re.sub(r"[A-Za-z0-9_-]{22}(?=\s)", "ID", text)
    text = re.sub(r"(localhost|127\.0\.0\.1)(:\d+)?", "HOST", text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def _consume(*arguments: str) -> Callable[[Server], str]:
    def run(server: Server) -> str:
        wanted = ["--bootstrap-server", server.bootstrap, "--topic", "jobs", "--group", "workers"]
        limits = ["--max-messages", str(_RECORDS), "--timeout-ms", "15000"]
        return "\n".join(sorted(_run(_CONSOLE, *wanted, *limits, *arguments).splitlines()))

    return run


def _produce(server: Server) -> str:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for i in range(_RECORDS):
        producer.produce("jobs", f"value {i}".encode(), f"key {i}".encode())
    return f"{producer.flush(30)} left"


def _create(server: Server) -> str:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("jobs", 1, 1)])["jobs"].result(30)
    where = ["--bootstrap-server", server.bootstrap, "--entity-type", "groups", "--entity-name", "workers"]
    return _run(_CONFIGS, *where, "--alter", "--add-config", "share.auto.offset.reset=earliest")


def _performance(server: Server) -> str:
    """The header of the report, and the number of records in it."""
    wanted = ["--bootstrap-server", server.bootstrap, "--topic", "jobs", "--group", "workers"]
    lines = _run(_PERFORMANCE, *wanted, "--messages", str(_RECORDS), "--timeout", "15000").splitlines()
    header = next((line for line in lines if "data.consumed" in line), "no header")
    names = [name.strip() for name in header.split(",")]
    values = lines[lines.index(header) + 1].split(",") if header in lines else []
    found = dict(zip(names, (value.strip() for value in values), strict=False))
    return f"{names} {[found.get(name) for name in names if 'nMsg' in name and 'sec' not in name.lower()]}"


def _verifiable(server: Server) -> str:
    """The events of VerifiableShareConsumer, and how many records each kind has."""
    wanted = ["--bootstrap-server", server.bootstrap, "--topic", "jobs", "--group-id", "workers"]
    counts: dict[str, int] = {}
    for line in _run(_VERIFIABLE, *wanted, "--max-messages", str(_RECORDS)).splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            counts[event["name"]] = counts.get(event["name"], 0) + event.get("count", 0)
    return json.dumps(counts, sort_keys=True)


def _dump(server: Server) -> str:
    """The fields of all records of `__share_group_state`, as the dump tool decodes them."""
    data = server.log.parent / "data"
    logs = [*data.glob("__share_group_state-*/*.log"), *data.glob("topics/__share_group_state/*/*.log")]
    files = ",".join(str(path) for path in logs if path.stat().st_size)
    text = _run(_DUMP, "--files", files, "--share-group-state-decoder")
    found = set()
    for line in text.splitlines():
        for part in re.findall(r"(?:key|payload): (\{.*?\})(?= payload:|$)", line):
            value = json.loads(part)
            found.add(f"type {value.get('type', value.get('version'))} {sorted(value['data'])}")
    return "\n".join(sorted(found)) or text[-2000:]


#: steps whose output differs, and why (docs/internals/shares.md)
_KNOWN: Final = {
    "describe offsets": "a write carries the start offset that holds once it is committed",
    "describe state": "the group epoch rises once less when share partitions are created",
}
STEPS: Final = (
    Step("create", _create),
    Step("produce", _produce),
    Step("console share consumer accepts", _consume("--property", "print.key=true")),
    Step("list", _groups("--list")),
    Step("list with states", _groups("--list", "--state")),
    Step("describe offsets", _groups("--describe", "--group", "workers")),
    Step("describe members", _groups("--describe", "--group", "workers", "--members")),
    Step("describe state", _groups("--describe", "--group", "workers", "--state", "--verbose")),
    Step("produce more", _produce),
    Step("console share consumer rejects", _consume("--reject")),
    Step("produce for the performance tool", _produce),
    Step("share consumer performance", _performance),
    Step("produce for the verifiable consumer", _produce),
    Step("verifiable share consumer", _verifiable),
    Step(
        "reset offsets",
        _groups("--reset-offsets", "--group", "workers", "--topic", "jobs", "--to-earliest", "--execute"),
    ),
    Step("describe reset offsets", _groups("--describe", "--group", "workers")),
    Step("describe a group that does not exist", _groups("--describe", "--group", "nobody")),
    Step("delete offsets", _groups("--delete-offsets", "--group", "workers", "--topic", "jobs")),
    Step("delete", _groups("--delete", "--group", "workers")),
    Step("delete again", _groups("--delete", "--group", "workers")),
    Step("dump of the state topic", _dump),
)


@contextmanager
def _started(kind: str) -> Iterator[Server]:
    with TemporaryDirectory(prefix="share-tools-") as folder:
        place = Path(folder)
        server = apache_kafka(place, _SETTINGS) if kind == "kafka" else penstock(place, _SETTINGS)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _difference(expected: str, found: str, against: str) -> Iterator[str]:
    return difflib.unified_diff(expected.splitlines(), found.splitlines(), against, "penstock", lineterm="")


def main() -> int:
    parser = Arguments(prog="python -m differential.share_tools", description=__doc__)
    parser.add_argument("--against", choices=("kafka", "penstock"), default="kafka")
    given = parser.parse_args()
    # Ends the brokers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    different = 0
    with _started("penstock") as ours, _started(given.against) as theirs, ThreadPoolExecutor(2) as both:
        for step in STEPS:
            found, expected = both.map(step.run, (ours, theirs))
            is_known = step.name in _KNOWN
            different += found != expected and not is_known
            verdict = "same" if found == expected else "known" if is_known else "DIFFERENT"
            print(f"{verdict:10} {step.name}", flush=True)
            for line in _difference(expected, found, given.against):
                print(f"    {line}", flush=True)
    print(f"{len(STEPS)} steps, {different} different")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
