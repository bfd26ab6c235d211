"""Every view of health shows the same level and the same reasons, in every fault.

Views: `/health`, `/readyz` and `/metrics` of each broker, `penstock health`, `penstock cluster status` and
the console. The brokers are processes whose disks and clocks have faults on request (`alarms.broker`).
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from alarms.broker import AHEAD, BROKEN, FAULTS, FULL, LOW, SECOND
from lab.cluster import Cluster, penstock_cluster
from lab.server import HOST, Server, free_ports
from penstock.console.kafka.cluster import Cluster as ConsoleCluster
from penstock.console.kafka.sampling import take_sample
from penstock.console.views.overview import health_of
from penstock.model.config.environment import variable
from penstock.model.config.storage_keys import DISK_FREE_MIN
from penstock.observability.health import ORDER, Level
from tests.broker.monitoring.scrapes import get, health, scrape
from tests.cli.running import run_here
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]

_SETTINGS: Final = {
    "penstock.flush": "group",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "5000",
    "penstock.scrub.interval.ms": "1000",
}
#: the default: other tests do without it
_DISK_LIMIT: Final = {variable("penstock.disk.free.min.ratio"): str(DISK_FREE_MIN)}
_TIMEOUT_S: Final = 60.0


class Stage:
    """The cluster, its fault markers, and a producer that keeps its disks busy."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.cluster: Cluster = penstock_cluster(home, _SETTINGS)
        #: the monitoring port of each broker
        self.ports = dict(enumerate(free_ports(3), 1))
        #: the broker that is stopped by SIGSTOP; 0 if none is
        self.hanging = 0
        for number, server in enumerate(self.cluster.brokers, 1):
            folder = home / f"broker-{number}"
            (folder / "faults").mkdir()
            path = folder / "server.properties"
            configs = dict(line.split("=", 1) for line in path.read_text().splitlines())
            configs["penstock.metrics.listener"] = f"{HOST}:{self.ports[number]}"
            if number == 2:
                configs["log.dirs"] += f",{folder / SECOND}"
            path.write_text("".join(f"{key}={value}\n" for key, value in configs.items()))
            server.command = [sys.executable, "-m", "alarms.broker", "up", "--config", str(path)]
            server.environment = {FAULTS: str(folder / "faults"), **_DISK_LIMIT}

    @property
    def running(self) -> list[tuple[int, Server]]:
        found = enumerate(self.cluster.brokers, 1)
        return [(i, server) for i, server in found if server.runs() and i != self.hanging]

    def hang(self, number: int) -> None:
        self.cluster.brokers[number - 1].pause()
        self.hanging = number

    def go_on(self) -> None:
        self.cluster.brokers[self.hanging - 1].resume()
        self.hanging = 0

    def damage(self, topic: str) -> None:
        """Flip a byte of a sealed segment of a topic that broker 2 alone has."""
        self.create(NewTopic(topic, 1, replica_assignment=[[2]], config={"segment.bytes": str(1 << 20)}))
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0})
        for _ in range(30):
            producer.produce(topic, b"x" * 100_000)
        assert producer.flush(_TIMEOUT_S) == 0
        segment = min((self._home / "broker-2").glob(f"data*/topics/{topic}/partition-0/*.log"))
        with segment.open("r+b") as file:
            file.seek(segment.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 0xFF]))

    def mark(self, number: int, fault: str, content: str = "") -> None:
        (self._home / f"broker-{number}" / "faults" / fault).write_text(content)

    def unmark(self, number: int, fault: str) -> None:
        (self._home / f"broker-{number}" / "faults" / fault).unlink(missing_ok=True)

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.cluster.brokers[number - 1].kill()

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.cluster.brokers[number - 1].launch()
        self.cluster.wait_ready()

    def create(self, topic: NewTopic) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        admin.create_topics([topic])[topic.topic].result(_TIMEOUT_S)

    def delete(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        admin.delete_topics([name])[name].result(_TIMEOUT_S)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    found = Stage(tmp_path_factory.mktemp("health"))
    found.cluster.start()
    over = threading.Event()
    try:
        found.create(NewTopic("orders", 6, 3))
        producer = Producer({"bootstrap.servers": found.cluster.bootstrap, "acks": "all", "log_level": 0})

        def write() -> None:
            while not over.wait(0.02):
                try:
                    producer.produce("orders", b"x" * 200)
                except BufferError:
                    producer.poll(0.1)
                producer.poll(0)

        threading.Thread(target=write, daemon=True).start()
        eventually(lambda: Views(found).level == Level.HEALTHY)
        yield found
    finally:
        over.set()
        for _, server in found.running:
            server.kill()


class Views:
    """All views at nearly the same time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.brokers = self._documents()
        self.exit_code, self.command = _json_of("health", "--bootstrap", stage.cluster.bootstrap, "--json")
        _, status = _json_of("cluster", "status", "--bootstrap", stage.cluster.bootstrap, "--json")
        self.status: dict[str, Any] = status["health"]
        self.console = asyncio.run(_console(stage.running[0][1].port))
        #: false if the health has changed while it was looked at
        self.is_steady = self._documents() == self.brokers

    def _documents(self) -> dict[int, dict[str, Any]]:
        found = {}
        for number, _ in self._stage.running:
            _, document = health(self._stage.ports[number])
            kept = {part: document[part] for part in ("status", "reasons", "codes")}
            found[number] = kept | {"topics": document["topics"]["reasons"]}
        return found

    @property
    def level(self) -> str:
        return str(self.command["status"])

    @property
    def codes(self) -> set[str]:
        return set(self.command["codes"])

    def differences(self) -> list[str]:
        """What two views show differently; empty if there is one truth."""
        command = (self.level, sorted(self.command["reasons"]))
        found = []
        for name, other in (
            ("cluster status", (self.status["status"], sorted(self.status["reasons"]))),
            ("console", (str(self.console[0]), sorted(self.console[1]))),
            ("/health of all brokers", self._merged()),
        ):
            if other != command:
                found.append(f"{name}: {other}, penstock health: {command}")
        for number, _ in self._stage.running:
            found += self._of_broker(number, self._stage.ports[number])
        if self.exit_code != {"Healthy": 0, "Degraded": 1, "Unhealthy": 2, "Unknown": 3}[self.level]:
            found.append(f"exit code {self.exit_code} for {self.level}")
        return found

    def _merged(self) -> tuple[str, list[str]]:
        """The reports of `/health`: reasons of the cluster once, those of one broker with its id."""
        levels = [Level(each["status"]) for each in self.brokers.values()]
        reasons: set[str] = set()
        for number, document in self.brokers.items():
            shared = _parts(self._stage, number)["cluster"]["reasons"]
            reasons |= {why if why in shared else f"broker {number}: {why}" for why in document["reasons"]}
        return str(max(levels, key=ORDER.index)), sorted(reasons)

    def _of_broker(self, number: int, port: int) -> list[str]:
        document, found = self.brokers[number], []
        status, text, _ = get(port, "/readyz")
        first, *lines = text.splitlines()
        levels = [Level(line.split(": ", 1)[0]) for line in lines]
        if str(max(levels, key=ORDER.index, default=Level.HEALTHY)) != document["status"]:
            found.append(f"/readyz of {number}: {text}, /health: {document}")
        if (status == 200) != (first == "ready"):
            found.append(f"/readyz of {number}: {status} {first}")
        page = scrape(port)
        if page.value("penstock_health_level", part="all") != ORDER.index(Level(document["status"])):
            found.append(f"metrics of {number}: another level than {document['status']}")
        codes = {labels["code"] for labels in page.labels("penstock_health_findings")}
        if codes != set(document["codes"]):
            found.append(f"metrics of {number}: {codes}, /health: {document['codes']}")
        row = next(each for each in self.command["brokers"] if each["broker"] == number)
        parts = _parts(self._stage, number)
        own = {*parts["broker"]["reasons"], *parts["clients"]["reasons"]}
        if set(row["reasons"]) != own:
            found.append(f"penstock health of {number}: {row}, /health: {own}")
        return found


def _parts(stage: Stage, number: int) -> dict[str, Any]:
    return health(stage.ports[number])[1]


def _json_of(*arguments: str) -> tuple[int, dict[str, Any]]:
    import contextlib
    import io

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = run_here(*arguments)
    return code, json.loads(output.getvalue())


async def _console(port: int) -> tuple[Level, list[str]]:
    cluster = ConsoleCluster([(HOST, port)])
    try:
        found = health_of(await take_sample(cluster, time.time))
        return found.level, found.reasons
    finally:
        cluster.close()


class Fault(NamedTuple):
    name: str
    level: Level
    codes: Sequence[str]
    begin: Callable[[Stage], None]
    end: Callable[[Stage], None]


def _marked(name: str, level: Level, code: str, fault: str, content: str = "") -> Fault:
    return Fault(name, level, [code], lambda s: s.mark(2, fault, content), lambda s: s.unmark(2, fault))


def _restart_second(stage: Stage) -> None:
    stage.unmark(2, BROKEN)
    stage.kill(2)
    stage.start(2)


def _strict_and_killed(stage: Stage) -> None:
    stage.create(NewTopic("strict", 1, 3, config={"min.insync.replicas": "3"}))
    stage.kill(3)


def _single_and_killed(stage: Stage) -> None:
    stage.create(NewTopic("single", 1, replica_assignment=[[3]]))
    stage.kill(3)


def _start_and_delete(*numbers: int, topic: str) -> Callable[[Stage], None]:
    def end(stage: Stage) -> None:
        stage.start(*numbers)
        stage.delete(topic)

    return end


FAULTS_IN_ORDER: Final = (
    _marked("disk below 20 %", Level.DEGRADED, "disk_low", LOW),
    _marked("clock 600 s ahead", Level.DEGRADED, "clock_doubted", AHEAD, "600000"),
    _marked("full data directory", Level.UNHEALTHY, "directory_full", FULL),
    Fault(
        "broker down",
        Level.DEGRADED,
        ["broker_fenced", "under_replicated"],
        lambda stage: stage.kill(3),
        lambda stage: stage.start(3),
    ),
    Fault(
        "broker that hangs",
        Level.DEGRADED,
        ["broker_fenced", "under_replicated"],
        lambda stage: stage.hang(3),
        lambda stage: stage.go_on(),
    ),
    Fault(
        "damage that no replica can repair",
        Level.DEGRADED,
        ["damaged"],
        lambda stage: stage.damage("rotten"),
        lambda stage: stage.delete("rotten"),
    ),
    Fault(
        "below min ISR",
        Level.UNHEALTHY,
        ["below_min_isr", "broker_fenced", "under_replicated"],
        _strict_and_killed,
        _start_and_delete(3, topic="strict"),
    ),
    Fault(
        "offline partition",
        Level.UNHEALTHY,
        ["offline_partitions", "broker_fenced"],
        _single_and_killed,
        _start_and_delete(3, topic="single"),
    ),
    Fault(
        "failed data directory",
        Level.UNHEALTHY,
        ["directory_offline"],
        lambda stage: stage.mark(2, BROKEN),
        _restart_second,
    ),
    Fault(
        "no controller",
        Level.UNHEALTHY,
        ["no_controller", "leader_silent"],
        lambda stage: stage.kill(2, 3),
        lambda stage: stage.start(2, 3),
    ),
)


@pytest.mark.parametrize("fault", FAULTS_IN_ORDER, ids=lambda fault: fault.name)
def test_all_views_agree(stage: Stage, fault: Fault) -> None:
    fault.begin(stage)
    differences: list[str] = ["nothing was looked at"]

    def agreed() -> bool:
        try:
            views = Views(stage)
        except json.JSONDecodeError:
            # A request was on its way to a controller that has just ended.
            differences[:] = ["a command has failed"]
            return False
        differences[:] = views.differences()
        is_seen = views.level == fault.level and set(fault.codes) <= views.codes
        if not is_seen:
            differences.insert(0, f"{views.level} with {views.codes}")
        return is_seen and not differences and views.is_steady

    try:
        _within(agreed, differences)
    finally:
        fault.end(stage)
    _within(lambda: Views(stage).level == Level.HEALTHY, [f"not healthy again after {fault.name}"])


def _within(condition: Callable[[], bool], reasons: list[str]) -> None:
    try:
        eventually(condition)
    except TimeoutError:
        raise TimeoutError("\n".join(reasons)) from None
