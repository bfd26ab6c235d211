"""`kafka-transactions.sh` prints the same of Penstock as of Apache Kafka, for all of its sub-commands.

The same transactions are made on both. Then the dump tool reads both logs of `__transaction_state`, and a
coordinator of Penstock loads the records that Apache Kafka wrote.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from differential.brokers import SETTINGS
from lab.apache_kafka import apache_kafka, tool
from lab.penstock import penstock
from lab.server import Server
from penstock.records.record import Record, iter_batches, iter_records
from penstock.wire.apis.produce import PRODUCE
from tests.broker.handlers.transaction_requests import Txn, init
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, batch_of, create_topic, produce_request, until
from tests.transactions.coordinator import Coordinator

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

#: the versions of EndTxn of both protocols
V1, V2 = 4, 5
#: without verification, a transaction can be opened that no coordinator knows
CONFIGS = {**SETTINGS, "transaction.partition.verification.enable": "false", "node.id": "1"}
HANGING = 777
LONG_AGO_MS = 1_700_000_000_000
#: longer than all commands take
TIMEOUT_MS = 900_000
#: the offset of the hanging transaction: two open ones before it, two that ended, each with a marker
HANGING_OFFSET = 6
TOOL_TIMEOUT_S = 180.0
#: short runs with warnings only
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
COMMANDS = (
    "list",
    "list --duration-filter 3600000",
    "list --transactional-id-pattern ab.*",
    "describe --transactional-id ongoing",
    "describe --transactional-id committed",
    "describe --transactional-id unknown",
    "describe-producers --topic tool --partition 0",
    "describe-producers --broker-id 1 --topic tool --partition 0",
    "find-hanging --broker-id 1 --max-transaction-timeout 1",
    "find-hanging --topic tool --partition 0 --max-transaction-timeout 1",
    "abort --topic tool --partition 0 --start-offset 1000",
    f"abort --topic tool --partition 0 --start-offset {HANGING_OFFSET}",
    f"abort --topic tool --partition 0 --start-offset {HANGING_OFFSET}",
    "find-hanging --topic tool --max-transaction-timeout 1",
    "forceTerminateTransaction --transactionalId forced",
    "forceTerminateTransaction --transactionalId unknown",
    "list",
    "describe --transactional-id forced",
    "describe-producers --topic tool --partition 0",
)


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Server]:
    folder.mkdir()
    server = (apache_kafka if kind == "kafka" else penstock)(folder, CONFIGS)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def prepare(client: RawClient, topic: Topic) -> None:
    """Make transactions in several states. New brokers give them the same producer ids."""
    for name in ("ongoing", "forced"):
        _, txn = init(client, name, transaction_timeout_ms=TIMEOUT_MS)
        assert txn.produce(topic, b"a") == "NONE"
    for name, committed, version in (("committed", True, V1), ("aborted", False, V2)):
        _, txn = init(client, name)
        if version == V1:
            assert txn.add(topic.name) == ["NONE"]
        assert txn.produce(topic, b"c", version=11 if version == V1 else 13) == "NONE"
        assert txn.end(committed, version).error_code == 0
        wait_for_end(txn)
    open_hanging(client, topic)


def open_hanging(client: RawClient, topic: Topic) -> None:
    batch = batch_of(
        [Record(0, LONG_AGO_MS, None, b"d")],
        producer_id=HANGING,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    request = produce_request(topic, batch, version=11)
    request.transactional_id = "hanging"
    response = client.call(PRODUCE, 11, request)
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, HANGING_OFFSET)


def wait_for_end(txn: Txn) -> None:
    until(lambda: txn.describe().transaction_state.startswith("Complete"))


def plain(text: str) -> str:
    """The text without times and durations, and without the width of columns."""
    return re.sub(r"(?<![\w.])-?\d{4,}(?![\w.])", "SOME", " ".join(text.split()))


def run(main_class: str, *arguments: str) -> list[str]:
    java, *command = tool(main_class)
    done = subprocess.run(
        [java, *JVM, *command, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    # Warnings of the tool's own logger are no output.
    errors = [line for line in done.stderr.splitlines() if not line.startswith(("[", "SLF4J", "\tat "))]
    return [f"exit {done.returncode}", *done.stdout.splitlines(), *errors]


def is_output(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("[")


class Found(NamedTuple):
    """The output of each command, the log as the dump tool prints it, and its records."""

    outputs: dict[str, list[str]]
    dump: dict[str, list[str]]
    records: list[tuple[bytes, bytes | None]]
    described: dict[str, tuple[str, int, int]]


def outcome(kind: str, folder: Path) -> Found:
    with running(kind, folder) as server:
        with RawClient(server.bootstrap) as client:
            prepare(client, create_topic(client, "tool"))
        outputs = {}
        for number, command in enumerate(COMMANDS):
            arguments = ["--bootstrap-server", server.bootstrap, *command.split()]
            lines = run("org.apache.kafka.tools.TransactionsCommand", *arguments)
            exit_line, *shown = [plain(line) for line in lines if is_output(line)]
            # The order of rows is that of partitions and hash maps.
            outputs[f"{number} {command}"] = [exit_line, *sorted(shown)]
            print(kind, command, *outputs[f"{number} {command}"], sep="\n    ", flush=True)
        with RawClient(server.bootstrap) as client:
            names = ("ongoing", "forced", "committed", "aborted")
            described = {name: state_of(client, name) for name in names}
    return Found(outputs, dumped(folder), list(records_in(folder)), described)


def state_of(client: RawClient, name: str) -> tuple[str, int, int]:
    found = Txn(client, name, -1, -1).describe()
    return found.transaction_state, found.producer_id, found.producer_epoch


def logs_in(folder: Path) -> list[Path]:
    data = folder / "data"
    found = [*data.glob("__transaction_state-*/*.log"), *data.glob("topics/__transaction_state/*/*.log")]
    return sorted(path for path in found if path.stat().st_size)


def dumped(folder: Path) -> dict[str, list[str]]:
    """By transactional id, the states in the order of the log, as the dump tool decodes them."""
    files = ",".join(map(str, logs_in(folder)))
    lines = run("org.apache.kafka.tools.DumpLogSegments", "--files", files, "--transaction-log-decoder")
    found: dict[str, list[str]] = {}
    for line in lines:
        if match := re.search(r"key: (\{.*?\}) payload: (.*)", line):
            found.setdefault(match[1], []).append(plain(match[2]))
    return found


def records_in(folder: Path) -> Iterator[tuple[bytes, bytes | None]]:
    for path in logs_in(folder):
        data = memoryview(path.read_bytes())
        for start, header in iter_batches(data):
            for record in iter_records(data[start : start + header.size]):
                if not header.is_control and record.key is not None:
                    yield bytes(record.key), None if record.value is None else bytes(record.value)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Found, Found]:
    folder = tmp_path_factory.mktemp("tool")
    return outcome("kafka", folder / "kafka"), outcome("penstock", folder / "penstock")


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_sub_commands(both: tuple[Found, Found], number: int) -> None:
    theirs, ours = ([*found.outputs.values()][number] for found in both)
    assert ours == theirs


def test_the_dump_of_the_log(both: tuple[Found, Found]) -> None:
    theirs, ours = both
    assert len(theirs.dump) == len(theirs.described) + 1  # that of the unknown id
    assert ours.dump == theirs.dump


def test_records_of_apache_kafka_load(both: tuple[Found, Found]) -> None:
    theirs, _ = both
    loaded = Coordinator(log=theirs.records).shard
    for name, (state, producer_id, epoch) in theirs.described.items():
        found = loaded.describe(name)
        assert (found.transaction_state, found.producer_id, found.producer_epoch) == (
            state,
            producer_id,
            epoch,
        )
