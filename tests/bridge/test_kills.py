"""A bridge, its broker and its source are killed with SIGKILL, and the counts add up.

Only `make bridges` runs it: `KILL_ROUNDS` and `KILL_MESSAGES` change its length.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from lab.penstock import penstock
from lab.server import Server
from tests.bridge.killable import Killable, NatsKillable, RabbitKillable, SqsKillable
from tests.cli.running import PENSTOCK
from tests.other_systems import (
    AWS_ENVIRONMENT,
    WITH_ALL,
    aws_here,
    elasticmq_here,
    nats_here,
    rabbitmq_here,
)
from tests.waiting import eventually

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(not WITH_ALL, reason="kills of bridges: `make bridges`"),
]

ROUNDS = int(os.environ.get("KILL_ROUNDS", "2"))
MESSAGES = int(os.environ.get("KILL_MESSAGES", "2000"))
"""Published in each round."""
WAIT_S = 90
TOPIC = "killed"


@contextmanager
def system(name: str, folder: Path) -> Iterator[Killable]:
    if name == "nats":
        with nats_here(folder) as server:
            yield NatsKillable(server)
    elif name == "amqp":
        with rabbitmq_here(folder) as server:
            yield RabbitKillable(server)
    elif name == "elasticmq":
        with elasticmq_here(folder, is_durable=True) as server:
            yield SqsKillable(server, is_durable=True)
    else:
        with aws_here(folder) as server:
            yield SqsKillable(server, is_durable=False)


class Bridge:
    """`penstock bridge` as a process that can be killed and started again."""

    def __init__(self, arguments: list[str], bootstrap: str, folder: Path) -> None:
        self._command = [*PENSTOCK, *arguments, "--in-flight", "100", "--json"]
        self._environment = {**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap}
        self._errors = folder / "bridge.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self, *more: str) -> None:
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [*self._command, *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
            )

    def end(self, number: signal.Signals | None) -> str:
        """Send a signal, or wait for the end; the output."""
        assert self._process is not None
        if number is not None:
            self._process.send_signal(number)
        output, _ = self._process.communicate(timeout=WAIT_S)
        expected = 0 if number is not signal.SIGKILL else -signal.SIGKILL
        assert self._process.returncode == expected, self._errors.read_text()[-2000:]
        return output

    @contextmanager
    def paused(self) -> Iterator[None]:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        yield
        self._process.send_signal(signal.SIGCONT)

    def abandon(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class Watch:
    """Looks at the topic and at the bridge's group, also while the broker is down."""

    def __init__(self, bootstrap: str) -> None:
        group = {"bootstrap.servers": bootstrap, "group.id": f"penstock-bridge-{TOPIC}", "log_level": 0}
        self._consumer = Consumer(group)
        self.close = self._consumer.close

    def records(self) -> int:
        """The end offset of the topic; 0 while the broker does not answer."""
        try:
            return int(self._consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=5)[1])
        except KafkaException:
            return 0

    def committed(self) -> int:
        """The committed offset of the group; 0 if there is none, or while the broker does not answer."""
        try:
            (place,) = self._consumer.committed([TopicPartition(TOPIC, 0)], timeout=5)
            return max(0, int(place.offset))
        except KafkaException:
            return 0


def run(bootstrap: str, *arguments: str) -> Any:
    done = subprocess.run(
        [*PENSTOCK, *arguments, "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kill_one_after_the_other(
    there: Killable, bridge: Bridge, broker: Server, watch: Watch, messages: int
) -> int:
    """Kill the bridge, the broker and the source while messages are copied; the number of kills."""
    before = watch.records()
    bridge.start()
    eventually(lambda: watch.records() > before + messages // 8, WAIT_S)
    bridge.end(signal.SIGKILL)
    bridge.start()
    eventually(lambda: watch.records() > before + messages // 3, WAIT_S)
    broker.kill()
    broker.start()
    if not there.is_durable:
        return 2
    eventually(lambda: watch.records() > before + messages // 2, WAIT_S)
    kill_server(there, bridge)
    return 3


def kill_server(there: Killable, bridge: Bridge) -> None:
    """Kill the server of the other system, and start it again."""
    there.server.kill()
    # A bridge ends if its queue does not exist, as it should.
    with bridge.paused() if there.restores_late else nullcontext():
        there.server.start()
        eventually(there.restored, WAIT_S)


@pytest.mark.parametrize("name", ["nats", "amqp", "elasticmq", "moto"])
def test_counts_add_up(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    for folder in ("other", "penstock"):
        (tmp_path / folder).mkdir()
    with ExitStack() as running:
        there = running.enter_context(system(name, tmp_path / "other"))
        there.prepare()
        broker = penstock(tmp_path / "penstock", {"penstock.log.level": "error"})
        broker.start()
        running.callback(broker.stop)
        run(broker.bootstrap, "topic", "create", TOPIC)
        watch = Watch(broker.bootstrap)
        running.callback(watch.close)
        bridge = Bridge(there.arguments(TOPIC), broker.bootstrap, tmp_path)
        running.callback(bridge.abandon)
        published = kills = 0
        messages = int(MESSAGES * there.share)
        for number in range(ROUNDS):
            if number:
                bridge.end(signal.SIGKILL)
                kills += 1
            there.publish(range(published, published + messages))
            published += messages
            kills += kill_one_after_the_other(there, bridge, broker, watch, messages)
        eventually(lambda: watch.records() >= published, WAIT_S)
        counts = json.loads(bridge.end(signal.SIGTERM))
        ended = counts["acknowledged"] + counts["merged"] + counts["released"] + counts["lost"]
        assert counts["received"] == ended

        bridge.start("--exit-at-end")
        rest = json.loads(bridge.end(None))
        assert rest["received"] == rest["acknowledged"] + rest["merged"] + rest["released"] + rest["lost"]
        (row,) = json.loads(run(broker.bootstrap, "bridge", "count", TOPIC, "--json"))["sources"]
        lines = run(broker.bootstrap, "consume", TOPIC, "--from-beginning", "--exit-at-end").splitlines()
        left = run_again(bridge)
    print(f"{name}: {published} published, {kills} kills, {row}", file=sys.stderr)
    assert row["distinct"] == published
    assert row["copies"] == row["distinct"] + row["duplicates"] == len(lines)
    assert {int(line) for line in lines} == set(range(published))
    assert left == 0, "nothing is left in the source"


def run_again(bridge: Bridge) -> int:
    bridge.start("--exit-at-end")
    return int(json.loads(bridge.end(None))["received"])


@pytest.mark.parametrize("name", ["nats", "amqp", "elasticmq"])
def test_records_go_back_through_kills(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JetStream discards the duplicates of `--reverse` by their ids; queues have all records, some twice."""
    for variable, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(variable, value)
    for folder in ("other", "penstock"):
        (tmp_path / folder).mkdir()
    with ExitStack() as running:
        there = running.enter_context(system(name, tmp_path / "other"))
        there.prepare()
        messages = int(MESSAGES * there.share)
        broker = penstock(tmp_path / "penstock", {"penstock.log.level": "error"})
        broker.start()
        running.callback(broker.stop)
        run(broker.bootstrap, "topic", "create", TOPIC)
        watch = Watch(broker.bootstrap)
        running.callback(watch.close)
        lines = tmp_path / "numbers.txt"
        lines.write_text("".join(f"{number}\n" for number in range(messages)))
        run(broker.bootstrap, "produce", TOPIC, str(lines))
        bridge = Bridge(there.reverse_arguments(TOPIC), broker.bootstrap, tmp_path)
        running.callback(bridge.abandon)
        bridge.start()
        eventually(lambda: watch.committed() > messages // 8, WAIT_S)
        bridge.end(signal.SIGKILL)
        bridge.start()
        eventually(lambda: watch.committed() > messages // 3, WAIT_S)
        kill_server(there, bridge)
        eventually(lambda: watch.committed() > messages // 2, WAIT_S)
        broker.kill()
        broker.start()
        eventually(lambda: watch.committed() == messages, WAIT_S)
        bridge.end(signal.SIGTERM)
        found = sorted(map(int, there.returned()))
    print(f"{name}: {messages} records, {len(found)} returned", file=sys.stderr)
    assert sorted(set(found)) == list(range(messages))
    if name == "nats":
        assert len(found) == messages
