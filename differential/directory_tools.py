"""Runs Kafka's tools for data directories against a broker of Penstock and one of Apache Kafka.

    make directory-tools     # or: python -m differential.directory_tools [--against penstock] [--verbose]

A replica moves between two data directories (KIP-113): planned, throttled, shown as a future replica, moved,
and read again. The output of the tools is compared.
"""

from __future__ import annotations

import difflib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lab.apache_kafka import apache_kafka, tool
from lab.penstock import penstock_node
from lab.server import HOST, Server, free_port
from tools.arguments import Arguments

_LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
_REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_CONFIGS: Final = "org.apache.kafka.tools.ConfigCommand"
_TOPIC: Final = "moved"
_RECORDS: Final = 6_000
_TIMEOUT_S: Final = 300.0


class Side(NamedTuple):
    """One broker with two data directories, `a` and `b` in its folder."""

    server: Server
    folder: Path


class Step(NamedTuple):
    name: str
    run: Callable[[Side], str]


def _run(side: Side, main_class: str, *arguments: str) -> str:
    done = subprocess.run(
        [*tool(main_class), "--bootstrap-server", side.server.bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("[")]
    lines += [line for line in done.stderr.splitlines() if re.search(r"(Exception|Error|Failed)", line)]
    return "\n".join([*lines, f"exit {done.returncode}"]).replace(str(side.folder), "FOLDER")


def _described(side: Side) -> dict[str, bool]:
    """The directories with the replica, and whether it is a future replica there."""
    text = _run(side, _LOG_DIRS, "--describe", "--broker-list", "1", "--topic-list", _TOPIC)
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    return {
        each["logDir"]: partition["isFuture"]
        for broker in found["brokers"]
        for each in broker["logDirs"]
        for partition in each["partitions"]
    }


def _source(side: Side) -> str:
    return next(path for path, is_future in _described(side).items() if not is_future)


def _named(side: Side, text: str) -> str:
    """The output with the directories by their role at the beginning: SOURCE and TARGET."""
    first = (side.folder / "source").read_text()
    second = {"FOLDER/a": "FOLDER/b", "FOLDER/b": "FOLDER/a"}[first]
    text = text.replace(first, "SOURCE").replace(second, "TARGET").replace("FOLDER", "")
    return re.sub(r"(127\.0\.0\.1|localhost):\d+", "HOST", text)


def _fill(side: Side) -> str:
    """Create the topic, write to it, and note where its replica is."""
    address = {"bootstrap.servers": side.server.bootstrap}
    admin = AdminClient(address)
    configs = {"segment.bytes": str(2 << 20)}
    admin.create_topics([NewTopic(_TOPIC, 1, 1, config=configs)])[_TOPIC].result(60)
    producer = Producer(address | {"enable.idempotence": True})
    for number in range(_RECORDS):
        producer.produce(_TOPIC, b"%06d" % number + b"x" * 1000)
        producer.poll(0)
    assert producer.flush(120) == 0
    (side.folder / "source").write_text(_source(side))
    return f"{_RECORDS} records"


def _plan(side: Side, target: str) -> str:
    """The file of a reassignment to TARGET or SOURCE, or to a directory that does not exist."""
    first = (side.folder / "source").read_text()
    paths = {"SOURCE": first, "TARGET": {"FOLDER/a": "FOLDER/b", "FOLDER/b": "FOLDER/a"}[first]}
    path = paths.get(target, target).replace("FOLDER", str(side.folder))
    plan = {"topic": _TOPIC, "partition": 0, "replicas": [1], "log_dirs": [path]}
    file = side.folder / f"{target.rpartition('/')[2]}.json"
    file.write_text(json.dumps({"version": 1, "partitions": [plan]}))
    return str(file)


def _execute(target: str, *arguments: str) -> Callable[[Side], str]:
    def run(side: Side) -> str:
        plan = _plan(side, target)
        return _named(side, _run(side, _REASSIGN, "--execute", "--reassignment-json-file", plan, *arguments))

    return run


def _verify(target: str) -> Callable[[Side], str]:
    """Verify until nothing is in progress."""

    def run(side: Side) -> str:
        deadline = time.monotonic() + _TIMEOUT_S
        plan = _plan(side, target)
        while True:
            text = _run(side, _REASSIGN, "--verify", "--reassignment-json-file", plan)
            if "in progress" not in text or time.monotonic() > deadline:
                return _named(side, text)

    return run


def _places(side: Side) -> str:
    return _named(
        side,
        "\n".join(f"{path} isFuture={is_future}" for path, is_future in sorted(_described(side).items())),
    )


def _read(side: Side) -> str:
    """Read all records from the beginning."""
    consumer = Consumer({"bootstrap.servers": side.server.bootstrap, "group.id": "readers"})
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    numbers: list[int] = []
    while len(numbers) < _RECORDS:
        message = consumer.poll(60)
        assert message is not None and message.error() is None, message
        numbers.append(int((message.value() or b"")[:6]))
    consumer.close()
    return "all in order" if numbers == list(range(_RECORDS)) else "other records"


def _throttle(side: Side) -> str:
    text = _run(side, _CONFIGS, "--describe", "--entity-type", "brokers", "--entity-name", "1")
    return "\n".join(sorted(set(re.findall(r"replica\.alter\.log\.dirs\.\S+=\d+", text))))


STEPS: Final = (
    Step("fill", _fill),
    Step("describe the directories", _places),
    Step("move to an unknown directory", _execute("/nowhere")),
    Step("begin a throttled move", _execute("TARGET", "--replica-alter-log-dirs-throttle", "1000")),
    Step("describe the throttle", _throttle),
    Step("describe the future replica", _places),
    Step("go back", _execute("SOURCE", "--additional", "--replica-alter-log-dirs-throttle", "1000000000")),
    Step("verify that it stayed", _verify("SOURCE")),
    Step("describe the directories again", _places),
    Step("move", _execute("TARGET")),
    Step("verify the move", _verify("TARGET")),
    Step("describe the new directory", _places),
    Step("describe the removed throttle", _throttle),
    Step("read", _read),
)


def _kafka(folder: Path) -> Server:
    return apache_kafka(folder, {"log.dirs": f"{folder}/a,{folder}/b"})


def _penstock(folder: Path) -> Server:
    port = free_port()
    listener = f"PLAINTEXT://{HOST}:{port}"
    stated = {"node.id": "1", "listeners": listener, "log.dirs": f"{folder}/a,{folder}/b"}
    return penstock_node(folder, port, stated)


_KINDS: Final[Mapping[str, Callable[[Path], Server]]] = {"kafka": _kafka, "penstock": _penstock}


@contextmanager
def _started(kind: str) -> Iterator[Side]:
    with TemporaryDirectory(prefix="directory-tools-") as name:
        server = _KINDS[kind](Path(name))
        server.start()
        try:
            yield Side(server, Path(name))
        finally:
            server.stop()


def main() -> int:
    parser = Arguments(prog="python -m differential.directory_tools", description=__doc__)
    parser.add_argument("--against", choices=sorted(_KINDS), default="kafka")
    parser.add_argument("--verbose", action="store_true", help="print the output of every step")
    given = parser.parse_args()
    # Ends the brokers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    different = 0
    with _started("penstock") as ours, _started(given.against) as theirs, ThreadPoolExecutor(2) as both:
        for step in STEPS:
            found, expected = both.map(step.run, (ours, theirs))
            different += found != expected
            print(f"{'same' if found == expected else 'DIFFERENT':10} {step.name}", flush=True)
            if given.verbose:
                print("\n".join(f"    {line}" for line in found.splitlines()), flush=True)
            lines = difflib.unified_diff(
                expected.splitlines(), found.splitlines(), given.against, "penstock", lineterm=""
            )
            for line in lines:
                print(f"    {line}", flush=True)
    print(f"{len(STEPS)} steps, {different} different")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
