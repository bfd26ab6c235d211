"""`penstock up --cores`: real brokers under one supervisor."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.overview import cluster_overview
from penstock.cli.cluster.processes import Process, is_alive
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.cli.machine.child import Child
from penstock.cli.machine.layout import Machine, lay_out
from penstock.cli.machine.supervisor import Backoff, Supervisor
from penstock.model.config import effective_configs
from tests.cli.machine.machine_process import RunningMachine, running_machine
from tests.cli.running import PENSTOCK, WAIT_S
from tests.waiting import eventually

pytestmark = pytest.mark.process
QUIET = {"log_level": 0}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMachine]:
    """A machine with two cores, on free ports."""
    with running_machine(tmp_path_factory.mktemp("machine"), "--port", "0") as running:
        yield running


def overview(machine: RunningMachine) -> dict[str, Any]:
    with DirectLine(machine.bootstrap, WAIT_S) as line:
        return cluster_overview(line)


def test_clients_bootstrap_from_the_common_port_and_use_both_brokers(machine: RunningMachine) -> None:
    client = {"bootstrap.servers": machine.bootstrap, **QUIET}
    admin = AdminClient(client)
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(WAIT_S)
    producer = Producer(client)
    for partition in (0, 1):
        producer.produce("t", b"%d" % partition, partition=partition)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer(client | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    read = {consumer.poll(WAIT_S).value() for _ in range(2)}
    consumer.close()
    assert read == {b"0", b"1"}
    leaders = {p["leader"] for p in overview(machine)["partitions"] if p["topic"] == "t"}
    assert leaders == {1, 2}


def test_replicas_never_share_the_machine(machine: RunningMachine) -> None:
    admin = AdminClient({"bootstrap.servers": machine.bootstrap, **QUIET})
    with pytest.raises(KafkaException, match=r"replicas are on different machines \(penstock.machine\)"):
        admin.create_topics([NewTopic("two", 1, 2)])["two"].result(WAIT_S)


def test_one_broker_votes_and_status_has_the_machine(machine: RunningMachine) -> None:
    brokers = overview(machine)["brokers"]
    assert [broker["quorum"] for broker in brokers] == ["leader", "observer"]
    assert len({broker["machine"] for broker in brokers} - {None}) == 1


def test_metrics_and_health_are_on_one_port(machine: RunningMachine) -> None:
    metrics = machine.http("/metrics")
    for broker in (1, 2):
        assert f'penstock_build_info{{broker="{broker}",' in metrics
    assert machine.http("/readyz") == "ready\n"
    assert json.loads(machine.http("/health"))["brokers"].keys() == {"1", "2"}


def test_a_broker_that_is_killed_is_started_again(machine: RunningMachine) -> None:
    killed = machine.pid(2)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: machine.has_logged("event=broker_ended", "broker=2"), WAIT_S)
    eventually(lambda: sum("broker=2 " in e and "event=started " in e for e in [*machine.log]) == 2, WAIT_S)
    eventually(lambda: [each["state"] for each in overview(machine)["brokers"]] == ["up", "up"], WAIT_S)
    assert machine.pid(2) != killed
    assert 'penstock_machine_broker_restarts_total{broker="2"} 1' in machine.http("/metrics")


def test_a_signal_stops_all_brokers_the_voter_last(machine: RunningMachine) -> None:
    machine.process.send_signal(signal.SIGTERM)
    assert machine.process.wait(WAIT_S) == 0
    eventually(lambda: machine.has_logged("broker=1 ", "event=stopped "), WAIT_S)
    stopped = [line.split()[0] for line in machine.log if "event=stopped " in line]
    assert stopped == ["broker=2", "broker=1"]
    assert not list(machine.folder.glob("broker-*/broker.pid"))


def test_a_broker_ends_with_its_supervisor() -> None:
    """Its standard input is a pipe, which the system closes when the supervisor is gone."""
    command = [*PENSTOCK, "up", "--supervised", "--port", "0", "--memory"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("ready ")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(WAIT_S) == 0


class BadChild:
    """A broker that ends at once."""

    is_ready = False
    last_line = b"penstock: the disk is gone"
    metrics_port = 1

    def end(self) -> None:
        """It has ended."""

    async def run(self, write: Callable[[bytes], None], ready: Callable[[], None]) -> int:
        return 1


class GoodChild(BadChild):
    """A broker that is ready at once, and ends when it is told to."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    def end(self) -> None:
        self._ended.set()

    async def run(self, write: Callable[[bytes], None], ready: Callable[[], None]) -> int:
        self.is_ready = True
        ready()
        await self._ended.wait()
        return 0


def machine_of(folder: Path, cores: int) -> Machine:
    return lay_out(effective_configs([{"log.dirs": str(folder), "broker.port": "0"}]), cores)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "after", lambda *_: 0.0)


@pytest.mark.usefixtures("no_pauses")
def test_a_broker_whose_restart_fails_is_started_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example without descriptors or with a full disk."""
    starts: list[int] = []

    async def start(home: BrokerHome, *_: object) -> GoodChild:
        starts.append(home.id)
        if starts.count(2) == 2 and home.id == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        if starts.count(2) == 3:
            supervisor.stop()
        return GoodChild()

    async def supervise() -> None:
        run = supervisor.run(lambda address: supervisor.children[2].end())
        await asyncio.wait_for(run, WAIT_S)

    supervisor = Supervisor(machine_of(tmp_path, 2), {})
    monkeypatch.setattr(Child, "start", start)
    asyncio.run(supervise())
    assert sorted(starts) == [1, 2, 2, 2]
    assert supervisor.restarts == {1: 0, 2: 2}


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize("code", [1, -signal.SIGKILL])
def test_a_broker_with_data_that_cannot_start_leaves_the_others_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    class Failing(BadChild):
        async def run(self, write: Callable[[bytes], None], ready: Callable[[], None]) -> int:
            return code

    starts: list[int] = []

    async def start(home: BrokerHome, *_: object) -> BadChild:
        starts.append(home.id)
        return Failing() if home.id == 2 and starts.count(2) < 3 else GoodChild()

    async def supervise() -> None:
        machine = machine_of(tmp_path, 2)
        give_data(machine.homes[1])
        supervisor = Supervisor(machine, {})
        await supervisor.run(lambda address: supervisor.stop())

    monkeypatch.setattr(Child, "start", start)
    asyncio.run(asyncio.wait_for(supervise(), WAIT_S))
    assert sorted(starts) == [1, 2, 2, 2]


@pytest.mark.usefixtures("no_pauses")
def test_a_machine_with_data_on_which_no_broker_starts_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example if its ports are in use."""

    async def start(*_: object) -> BadChild:
        return BadChild()

    async def supervise() -> None:
        machine = machine_of(tmp_path, 2)
        for home in machine.homes:
            give_data(home)
        await Supervisor(machine, {}).run(lambda address: pytest.fail("it is not ready"))

    monkeypatch.setattr(Child, "start", start)
    with pytest.raises(Failure, match=r"broker [12] did not start: the disk is gone"):
        asyncio.run(asyncio.wait_for(supervise(), WAIT_S))


def give_data(home: BrokerHome) -> None:
    home.data.mkdir(parents=True)
    (home.data / "meta.json").touch()


def test_an_error_does_not_keep_the_voter_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []

    class Fragile(GoodChild):
        def __init__(self, home: BrokerHome) -> None:
            super().__init__()
            self._id = home.id

        async def run(self, write: Callable[[bytes], None], ready: Callable[[], None]) -> int:
            await super().run(write, ready)
            ended.append(self._id)
            if self._id == 2:
                raise RuntimeError("a defect")
            return 0

    async def start(home: BrokerHome, *_: object) -> Fragile:
        return Fragile(home)

    async def supervise() -> None:
        supervisor = Supervisor(machine_of(tmp_path, 2), {})
        await supervisor.run(lambda address: supervisor.stop())

    monkeypatch.setattr(Child, "start", start)
    with pytest.raises(RuntimeError, match="a defect"):
        asyncio.run(asyncio.wait_for(supervise(), WAIT_S))
    assert ended == [2, 1]


def test_a_broker_runs_without_its_pid_file_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Process] = []

    def full(path: Path, process: Process) -> None:
        started.append(process)
        raise OSError(errno.ENOSPC, "No space left on device")

    async def run() -> int:
        child = await Child.start(machine_of(tmp_path, 1).homes[0], 1, {})
        assert is_alive(started[0])
        os.kill(child.pid, signal.SIGKILL)
        return await child.run(lambda line: None, lambda: None)

    monkeypatch.setattr("penstock.cli.machine.child.write_pid_file", full)
    assert asyncio.run(run()) == -signal.SIGKILL
    assert not is_alive(started[0])


def test_a_broker_that_cannot_start_ends_all_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*_: object) -> BadChild:
        return BadChild()

    async def supervise() -> None:
        await Supervisor(lay_out(configs, 2), {}).run(lambda address: pytest.fail("it is not ready"))

    monkeypatch.setattr(Child, "start", start)
    configs = effective_configs([{"log.dirs": str(tmp_path), "broker.port": "0"}])
    with pytest.raises(Failure, match=r"broker [12] did not start: the disk is gone"):
        asyncio.run(supervise())
