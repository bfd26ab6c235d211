"""`penstock consume`: where it starts, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
from threading import Event
from typing import Any, cast

import pytest

from penstock.cli.commands.consume import _End
from penstock.testing import broker as broker_thread
from tests.cli.running import PENSTOCK, WAIT_S, Command, interruptible, lines, run_here


class Member:
    """A consumer whose group answers once it may."""

    def __init__(self) -> None:
        self.may_leave = Event()
        self.has_left = Event()

    def close(self) -> None:
        self.may_leave.wait()
        self.has_left.set()


@pytest.mark.parametrize("answers", [True, False])
def test_a_group_that_does_not_respond_does_not_delay_the_end(answers: bool) -> None:
    member = Member()
    if answers:
        member.may_leave.set()
    end = _End(cast(Any, member), 60.0 if answers else 0.01)
    end.close()
    assert end.has_left is answers
    member.may_leave.set()
    assert member.has_left.wait(60)


def test_where_to_start(penstock: Command) -> None:
    penstock("topic", "create", "starts")
    rows = "".join(f'{{"value":"{n}","timestamp":{n * 1000}}}\n' for n in range(1, 6))
    penstock("produce", "starts", "-f", "json", input=rows)

    def read(*arguments: str) -> list[str]:
        return lines(penstock("consume", "starts", "--exit-at-end", *arguments).stdout)

    assert read() == []
    assert read("--offset", "3") == ["4", "5"]
    assert read("--offset", "-1") == ["5"]
    assert read("--offset", "99") == []
    assert read("--timestamp", "3500") == ["4", "5"]
    assert read("--timestamp", "1970-01-01T00:00:02Z") == ["2", "3", "4", "5"]
    assert read("--from-beginning", "--count", "2") == ["1", "2"]
    assert read("--from-beginning", "--partition", "0", "--format", "key-value", "-K", "|")[0] == "|1"


def test_consuming_from_a_missing_topic_does_not_create_it(penstock: Command) -> None:
    done = penstock("consume", "absent")
    assert (done.returncode, done.stdout) == (1, "")
    assert "penstock topic create absent" in done.stderr
    assert "absent" not in penstock("topic", "list").stdout
    penstock("topic", "create", "present")
    assert penstock("consume", "present", "--partition", "5").stderr == (
        "penstock: present has no partition 5: its partitions are 0 to 0\n"
    )


@pytest.mark.process
def test_a_reader_that_leaves_ends_it_also_where_nothing_more_arrives(penstock: Command, broker: str) -> None:
    penstock("topic", "create", "few")
    penstock("produce", "few", input="x\n")
    with interruptible("consume", "few", "--from-beginning", "--bootstrap", broker) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "x\n"
        process.stdout.close()
        assert process.wait(WAIT_S) == 0
        assert process.stderr.read() == ""


@pytest.mark.process
def test_a_reader_that_has_seen_enough_ends_it_quietly(penstock: Command, broker: str) -> None:
    penstock("topic", "create", "piped")
    penstock("produce", "piped", input="x\n" * 50_000)
    command = [*PENSTOCK, "consume", "piped", "--from-beginning", "--bootstrap", broker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "x\n"
        process.stdout.close()
        assert process.wait(WAIT_S) == 0
        assert process.stderr.read() == ""


def interrupted(*arguments: str) -> tuple[int, str]:
    """Ctrl-C after the first line of output: exit code, and what is said."""
    with interruptible(*arguments) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "x\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=WAIT_S)
        assert output == ""
        return process.returncode, errors


@pytest.mark.process
def test_interrupting_consume_is_how_it_ends(penstock: Command, broker: str) -> None:
    penstock("topic", "create", "interrupted")
    penstock("produce", "interrupted", input="x\n")
    consume = ("consume", "interrupted", "--from-beginning", "--bootstrap", broker)
    assert interrupted(*consume) == (0, "consumed 1 messages\n")
    in_group = interrupted(*consume, "--group", "interrupted")
    assert in_group == (0, "consumed 1 messages, committed in group interrupted\n")
    (group,) = json.loads(penstock("group", "describe", "interrupted", "--json").stdout)
    assert [p["committed"] for p in group["partitions"]] == [1]


@pytest.mark.process
def test_interrupting_a_consume_that_would_end_by_itself_is_a_failure(penstock: Command, broker: str) -> None:
    penstock("topic", "create", "cut-short")
    penstock("produce", "cut-short", input="x\n")
    consume = ("consume", "cut-short", "--from-beginning", "--bootstrap", broker)
    assert interrupted(*consume, "--count", "9") == (130, "penstock: interrupted after 1 messages\n")


def test_the_last_messages_of_an_empty_partition(penstock: Command) -> None:
    assert penstock("topic", "create", "hollow", "--partitions", "2").returncode == 0
    done = penstock("consume", "hollow", "--partition", "1", "--offset", "-10", "--exit-at-end")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "hollow partition 1 is empty: it has no last 10 messages\n"


def test_a_lone_member_of_the_new_protocol_does_not_wait(capfd: pytest.CaptureFixture[str]) -> None:
    with broker_thread(config={"group.initial.rebalance.delay.ms": "60000"}) as running:
        where = ["--bootstrap", running.bootstrap]
        assert run_here("topic", "create", "quick", *where) == 0
        lone = ["consume", "quick", "--group", "lone", "--protocol", "consumer", "--exit-at-end"]
        assert run_here(*lone, *where) == 0
        capfd.readouterr()
        assert run_here("group", "list", "--json", *where) == 0
    assert json.loads(capfd.readouterr().out)[0]["type"] == "consumer"


@pytest.mark.parametrize(
    "wrong", [["--protocol", "consumer"], ["--group", "g", "--queue", "--protocol", "classic"]]
)
def test_only_consumer_groups_have_a_protocol(wrong: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run_here("consume", "quick", *wrong) == 2
    assert "--protocol is that of a consumer group" in capfd.readouterr().err


def test_a_group_that_waits_for_more_members_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with broker_thread(config={"group.initial.rebalance.delay.ms": "2000"}) as running:
        where = ["--bootstrap", running.bootstrap]
        assert run_here("topic", "create", "slow", *where) == 0
        capfd.readouterr()
        assert run_here("consume", "slow", "--group", "lone", "--exit-at-end", *where) == 0
    assert "a new group waits for more members (group.initial.rebalance.delay.ms" in capfd.readouterr().err
