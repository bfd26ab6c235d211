"""Kafka Streams with both protocols, on Penstock and on Apache Kafka: the same results, whatever is killed.

An application counts words, in total and by window, and joins them with a table, exactly once. Three
instances run, each with standby tasks of the others; one is killed, and another one comes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from lab.apache_kafka import apache_kafka, tool
from lab.home import command
from lab.kafka_streams import streams_classpath
from lab.penstock import penstock
from lab.server import Server, free_ports
from tests.ecosystem.committed import create, read_committed
from tests.ecosystem.conftest import Program

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

SOURCE = Path(__file__).parent / "java" / "StreamsApplication.java"
PARTITIONS, LINES, WORDS = 3, 600, 4
VOCABULARY = [f"word{number}" for number in range(12)]
#: instances that are killed are missed soon
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "1000",
    "group.streams.heartbeat.interval.ms": "1000",
}
_PATIENCE_S = 120.0
_GROUP_TOOL = "org.apache.kafka.tools.streams.StreamsGroupCommand"


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [(kind, protocol) for kind in ("penstock", "kafka") for protocol in ("streams", "classic")],
)
def test_an_instance_is_killed_and_another_one_comes(
    kind: str, protocol: str, tmp_path: Path, program: Callable[[str, list[str]], Program]
) -> None:
    (folder := tmp_path / "broker").mkdir()
    server = apache_kafka(folder, SETTINGS) if kind == "kafka" else penstock(folder, SETTINGS)
    server.start()
    try:
        words = Words(server.bootstrap)
        words.send(LINES // 3)
        instances = Instances(server, protocol, tmp_path, program)
        for number in (1, 2, 3):
            instances.start(number)
        instances.wait_for_tasks(3)
        words.send(LINES // 3)
        instances.kill(3)
        words.send(LINES // 3)
        instances.start(4)
        instances.wait_for_tasks(3)
        instances.wait_until(lambda: len(words.counted()) >= LINES * WORDS)
        words.verify()
        if protocol == "streams":
            instances.administrate()
    finally:
        server.stop()


class Words:
    """Sends lines of random words, and knows what the application must make of them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._rng = Random(1)
        self._sent = Counter[str]()
        names = ("lines", "kinds", "counts", "windows", "joined")
        create(bootstrap, 1, *(NewTopic(name, PARTITIONS, 1) for name in names))
        # Keys are in the partitions in which Java clients look for them.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "log_level": 0}
        )
        for word in VOCABULARY:
            self._producer.produce("kinds", f"kind of {word}", key=word)
        assert self._producer.flush(60) == 0

    def send(self, count: int) -> None:
        for number in range(count):
            line = self._rng.choices(VOCABULARY, k=WORDS)
            self._sent.update(line)
            self._producer.produce("lines", " ".join(line), partition=number % PARTITIONS)
        assert self._producer.flush(60) == 0

    def counted(self) -> list[Message]:
        return read_committed(self._bootstrap, "counts", PARTITIONS)

    def verify(self) -> None:
        expected = {word.encode(): list(range(1, count + 1)) for word, count in self._sent.items()}
        for topic in ("counts", "windows"):
            found: dict[bytes, list[int]] = {}
            for message in read_committed(self._bootstrap, topic, PARTITIONS):
                found.setdefault(message.key() or b"", []).append(int(message.value() or b""))
            assert found == expected, topic
        joined = Counter(m.value() for m in read_committed(self._bootstrap, "joined", PARTITIONS))
        assert joined == {f"{w} is kind of {w}".encode(): count for w, count in self._sent.items()}


class Instances:
    """The instances of the application."""

    def __init__(
        self, server: Server, protocol: str, folder: Path, program: Callable[[str, list[str]], Program]
    ) -> None:
        self._server = server
        self._protocol = protocol
        self._folder = folder
        self._program = program
        self._running: dict[int, Program] = {}
        if protocol == "streams":
            _set_standby_tasks(server.bootstrap)

    def start(self, number: int) -> None:
        java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", streams_classpath(), str(SOURCE)]
        state = str(self._folder / f"state-{number}")
        (port,) = free_ports(1)
        arguments = ["app", state, self._protocol, "disk", f"instance-{number}", str(port)]
        instance = self._program(f"instance-{number}", [*java, self._server.bootstrap, *arguments])
        instance.start()
        self._running[number] = instance

    def kill(self, number: int) -> None:
        self._running.pop(number).kill()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        next(iter(self._running.values())).wait_until(condition)

    def wait_for_tasks(self, instances: int) -> None:
        """Wait until each instance has tasks, and knows all others."""

        def is_even() -> bool:
            lines = [program.log().splitlines() for program in self._running.values()]
            last = [[line for line in log if line.startswith("tasks ")][-1:] for log in lines]
            return all(
                line and not line[0].startswith("tasks 0 ") and line[0].endswith(f"instances {instances}")
                for line in last
            )

        self.wait_until(is_even)

    def administrate(self) -> None:
        """Every subcommand of `kafka-streams-groups.sh`."""
        assert "app" in self._tool("--list", "--state")
        assert self._tool("--describe", "--group", "app", "--members", "--verbose").count("STANDBY: ") >= 3
        assert "lines" in self._tool("--describe", "--group", "app", "--offsets")
        for number in list(self._running):
            self.kill(number)
        deadline = time.monotonic() + _PATIENCE_S
        while "Empty" not in (said := self._tool("--describe", "--group", "app", "--state")):
            assert time.monotonic() < deadline, said
        moved = self._tool(
            "--reset-offsets", "--group", "app", "--to-earliest", "--all-input-topics", "--execute"
        )
        assert "lines" in moved and "Error" not in moved, moved
        assert "Successful" in self._tool("--delete-offsets", "--group", "app", "--input-topic", "lines")
        assert "successful" in self._tool("--delete", "--group", "app")
        assert "app" not in self._tool("--list").splitlines()

    def _tool(self, *arguments: str) -> str:
        address = ["--bootstrap-server", self._server.bootstrap]
        return command([*tool(_GROUP_TOOL), *address, *arguments], self._folder)


def _set_standby_tasks(bootstrap: str) -> None:
    entry = ConfigEntry("streams.num.standby.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "app", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
