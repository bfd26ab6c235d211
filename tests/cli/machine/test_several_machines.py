"""Three machines of two brokers each, with the file and the commands of docs/cores.md, as one cluster."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from penstock.cli.cluster.listening import free_block
from penstock.cli.cluster.moves import read_image
from penstock.cli.cluster.overview import cluster_overview
from penstock.cli.direct import DirectLine
from tests.cli.machine.machine_process import RunningMachine, starting_machine
from tests.cli.running import WAIT_S, run_here
from tests.waiting import eventually

pytestmark = pytest.mark.process
PAGE = Path(__file__).parents[3] / "docs" / "cores.md"
HOST = "127.0.0.1"
CORES = 2
#: ids of the brokers by machine
BROKERS = {1: (1, 2), 2: (101, 102), 3: (201, 202)}


class Page:
    """The file and the commands of the section about several machines, for machines at these ports."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        text = PAGE.read_text(encoding="utf-8")
        section = text[text.index("## Several machines") : text.index("## TLS")]
        for number, port in ports.items():
            section = section.replace(f"machine-{number}:9092", f"{HOST}:{port}")
        (self.file,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
        lines = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines()
        self.up, self.status, self.drain = (shlex.split(line, comments=True)[1:] for line in lines)

    def start(self, folder: Path, number: int) -> list[str]:
        """The command that starts a machine, with two cores, its own data and its own name."""
        file = folder / f"machine-{number}.yaml"
        data = folder / str(number)
        file.write_text(self.file.replace("/var/lib/penstock", str(data)).replace("0.0.0.0", HOST))
        own = {"machine.yaml": str(file), "1": str(number), "auto": str(CORES)}
        # The name of the host would be that of all machines.
        return [*(own.get(word, word) for word in self.up), "--set", f"penstock.machine=machine-{number}"]


class Machines:
    """The machines of the cluster by number, once all are ready."""

    def __init__(self, page: Page, running: Mapping[int, RunningMachine]) -> None:
        self.page = page
        self.running = running
        self.client = {"bootstrap.servers": running[1].bootstrap, "log_level": 0}
        self.admin = AdminClient(self.client)

    def overview(self) -> dict[str, Any]:
        with DirectLine(self.running[1].bootstrap, WAIT_S) as line:
            return cluster_overview(line)

    def create(self, topic: str, partitions: int, replicas: int) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(WAIT_S)
        # The broker that responds may know of the topic later.
        eventually(lambda: len(self.replicas(topic)) == partitions, WAIT_S)

    def replicas(self, topic: str) -> list[list[int]]:
        return [each["replicas"] for each in self.overview()["partitions"] if each["topic"] == topic]

    def known_topics(self) -> list[set[str]]:
        """The topics that each broker of the first machine knows."""
        addresses = [each["address"] for each in self.overview()["brokers"] if each["broker"] in BROKERS[1]]
        known = []
        for address in addresses:
            with DirectLine(address, WAIT_S) as line:
                known.append(set(read_image(line).topics))
        return known

    def states(self) -> dict[int, str]:
        return {each["broker"]: each["state"] for each in self.overview()["brokers"]}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    folder = tmp_path_factory.mktemp("machines")
    first = free_block(HOST, len(BROKERS) * (CORES + 1))
    page = Page({number: first + (number - 1) * (CORES + 1) for number in BROKERS})
    with ExitStack() as stack:
        started = {
            number: stack.enter_context(starting_machine(folder / str(number), *page.start(folder, number)))
            for number in BROKERS
        }
        yield Machines(page, {number: ready() for number, ready in started.items()})


def test_one_broker_of_each_machine_votes(machines: Machines) -> None:
    brokers = machines.overview()["brokers"]
    assert {each["broker"]: each["machine"] for each in brokers} == {
        id_: f"machine-{number}" for number, ids in BROKERS.items() for id_ in ids
    }
    voters = [each["broker"] for each in brokers if each["quorum"] in ("leader", "voter")]
    assert voters == [1, 101, 201]


def test_replicas_are_on_three_machines(machines: Machines) -> None:
    machines.create("three", 6, -1)
    for replicas in machines.replicas("three"):
        assert sorted(id_ // 100 for id_ in replicas) == [0, 1, 2]
    assert {id_ for replicas in machines.replicas("three") for id_ in replicas} == set(machines.states())
    producer = Producer(machines.client | {"acks": "all"})
    for partition in range(6):
        producer.produce("three", b"r", partition=partition)
    assert producer.flush(WAIT_S) == 0


def test_status_has_the_brokers_by_machine(machines: Machines, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(*machines.page.status) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:4] for row in rows[2:5]] == [[f"machine-{number}", "-", "2", "2"] for number in BROKERS]
    assert [row[:2] for row in rows[6:12]] == [
        [f"machine-{number}", str(id_)] for number, ids in BROKERS.items() for id_ in ids
    ]


def test_replicas_that_a_user_puts_on_one_machine_are_shown_and_moved_apart(
    machines: Machines, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As Kafka's tools must be able to."""
    assigned = NewTopic("assigned", 1, replica_assignment=[[1, 2]])
    machines.admin.create_topics([assigned])["assigned"].result(WAIT_S)
    eventually(lambda: all("assigned" in known for known in machines.known_topics()), WAIT_S)
    assert run_here(*machines.page.status) == 0
    assert (
        "1 partition(s) have several replicas on one machine, for example assigned-0 on brokers 1, 2: "
        in (capsys.readouterr().out)
    )
    where = ["--bootstrap", machines.running[1].bootstrap]
    assert run_here("partition", "reassign", "plan", "--topic", "assigned", *where) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    assert run_here("partition", "reassign", "execute", str(plan), "--wait", *where) == 0
    (replicas,) = machines.replicas("assigned")
    assert len({id_ // 100 for id_ in replicas}) == 2
    assert machines.overview()["sharing_a_machine"] == []


def test_a_user_may_put_new_and_reassigned_partitions_on_one_machine(
    machines: Machines, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machines.create("grown", 1, 2)
    machines.admin.create_partitions([NewPartitions("grown", 2, [[101, 102]])])["grown"].result(WAIT_S)
    eventually(lambda: [101, 102] in machines.replicas("grown"), WAIT_S)
    assert [(each["topic"], each["partition"]) for each in machines.overview()["sharing_a_machine"]] == [
        ("grown", 1)
    ]
    where = ["--bootstrap", machines.running[1].bootstrap]
    wanted = {"version": 1, "partitions": [{"topic": "grown", "partition": 0, "replicas": [201, 202]}]}
    file = tmp_path / "wanted.json"
    file.write_text(json.dumps(wanted))
    assert run_here("partition", "reassign", "execute", str(file), "--wait", *where) == 0
    assert machines.replicas("grown") == [[201, 202], [101, 102]]
    assert len(machines.overview()["sharing_a_machine"]) == 2
    capsys.readouterr()
    assert run_here("partition", "reassign", "plan", "--topic", "grown", *where) == 0
    file.write_text(capsys.readouterr().out)
    assert run_here("partition", "reassign", "execute", str(file), "--wait", *where) == 0
    assert all(len({id_ // 100 for id_ in replicas}) == 2 for replicas in machines.replicas("grown"))
    assert machines.overview()["sharing_a_machine"] == []
    machines.admin.delete_topics(["grown"])["grown"].result(WAIT_S)
    eventually(lambda: not any("grown" in known for known in machines.known_topics()), WAIT_S)


def test_a_broker_that_is_killed_is_started_again(machines: Machines) -> None:
    machine = machines.running[3]
    killed = machine.pid(202)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: machine.has_logged("event=broker_ended", "broker=202"), WAIT_S)
    eventually(lambda: sum("broker=202 " in e and "event=started " in e for e in [*machine.log]) == 2, WAIT_S)
    eventually(lambda: set(machines.states().values()) == {"up"}, WAIT_S)
    assert machine.pid(202) != killed


def test_a_machine_is_drained_and_stopped(machines: Machines, capsys: pytest.CaptureFixture[str]) -> None:
    machines.create("two", 6, 2)
    assert run_here(*machines.page.drain) == 1
    assert re.search(r"three-\d has 3 replicas, and too few machines that are up", capsys.readouterr().err)
    machines.admin.delete_topics(["three"])["three"].result(WAIT_S)
    eventually(lambda: not any("three" in known for known in machines.known_topics()), WAIT_S)
    assert any({101, 102} & set(replicas) for replicas in machines.replicas("two"))
    assert run_here(*machines.page.drain) == 0
    assert capsys.readouterr().out.startswith("drained 101, 102: ")
    assert {*map(tuple, map(sorted, machines.replicas("two")))} <= {
        (a, b) for a in (1, 2) for b in (201, 202)
    }
    machine = machines.running[2]
    machine.process.send_signal(signal.SIGTERM)
    assert machine.process.wait(WAIT_S) == 0
    eventually(
        lambda: [id_ for id_, state in machines.states().items() if state != "up"] == [101, 102], WAIT_S
    )
    overview = machines.overview()
    assert overview["under_replicated"] == overview["leaderless"] == []
