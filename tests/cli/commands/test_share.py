"""Share groups through the commands: consumed, listed, described, moved, deleted; dead letters redriven."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest

from penstock.cli.redrive import Origin, origin_of
from penstock.testing import queues
from tests.cli.running import Command

_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """A broker with share groups, instead of the one that all tests of client commands share."""
    with queues(config={"penstock.log.level": "error"}) as running:
        yield running.bootstrap


@pytest.fixture
def topic(penstock: Command) -> str:
    name = f"shared-{next(_numbers)}"
    penstock("topic", "create", name)
    assert penstock("produce", name, input="one\ntwo\nthree\n").returncode == 0
    return name


def consume(penstock: Command, topic: str, group: str, *arguments: str) -> list[str]:
    done = penstock("consume", topic, "--queue", "--group", group, "--from-beginning", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_group_from_its_first_message_to_its_end(penstock: Command, topic: str) -> None:
    group = f"workers-{topic}"
    assert consume(penstock, topic, group, "--count", "2") == ["one", "two"]
    assert consume(penstock, topic, group, "--exit-at-end") == ["three"]

    assert f"{group}  empty" in penstock("share", "list").stdout.splitlines()
    (described,) = json.loads(penstock("share", "describe", group, "--json").stdout)
    assert (described["state"], described["members"]) == ("empty", [])
    assert described["configs"] == {"share.auto.offset.reset": "earliest"}
    assert described["partitions"] == [
        {"topic": topic, "partition": 0, "start": 3, "lag": 0, "deletes_consumed": False}
    ]
    shown = penstock("share", "describe", group).stdout
    assert f"{group}  share, empty" in shown
    assert "share.auto.offset.reset=earliest" in shown

    moved = penstock("share", "reset", group, "--to-offset", "1")
    assert moved.stdout.splitlines()[1].split() == [topic, "0", "3", "1"]
    assert "--execute" in moved.stderr
    penstock("share", "reset", group, "--to-offset", "1", "--execute")
    assert consume(penstock, topic, group, "--count", "1", "--json")[0].count('"offset":1') == 1

    assert penstock("share", "delete", group, "--topic", topic).stdout == f"deleted {group}\n"
    assert json.loads(penstock("share", "describe", group, "--json").stdout)[0]["partitions"] == []
    assert penstock("share", "delete", group).returncode == 0
    again = penstock("share", "delete", group)
    assert (again.returncode, "penstock share list" in again.stderr) == (1, True)
    assert penstock("share", "delete", group, "--if-exists").stdout == f"missing {group}\n"


def test_wrong_use(penstock: Command, topic: str) -> None:
    assert "--queue needs --group" in penstock("consume", topic, "--queue").stderr
    assert "no topic" in penstock("consume", "nowhere", "--queue", "--group", "g").stderr
    assert "no share group nobody" in penstock("share", "describe", "nobody").stderr
    assert "name a target" in penstock("share", "reset", "nobody").stderr


def test_dead_letters_go_back(penstock: Command, topic: str) -> None:
    """One letter has a copy of its message, one names it, and one names a message that does not exist."""
    origin = [
        {"name": "__dlq.errors.topic", "value": topic},
        {"name": "__dlq.errors.partition", "value": "0"},
    ]
    copied = {"value": "copy", "key": "k", "headers": [{"name": "own", "value": "1"}, *origin]}
    rows = [
        {**copied, "headers": [*copied["headers"], {"name": "__dlq.errors.offset", "value": "0"}]},
        {"value": None, "headers": [*origin, {"name": "__dlq.errors.offset", "value": "1"}]},
        {"value": None, "headers": [*origin, {"name": "__dlq.errors.offset", "value": "99"}]},
    ]
    dead = f"dlq.{topic}"
    penstock("topic", "create", dead)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert penstock("produce", dead, "--format", "json", input=lines).returncode == 0
    done = penstock("share", "redrive", dead, "--rate", "1000", "--json", "--group", f"redrive-{topic}")
    assert json.loads(done.stdout) == {"topic": dead, "sent": 2, "rejected": 1}
    found = penstock("consume", topic, "--offset", "3", "--exit-at-end", "--json").stdout.splitlines()
    messages = [json.loads(line) for line in found]
    assert [(m["key"], m["value"]) for m in messages] == [("k", "copy"), (None, "two")]
    assert messages[0]["headers"] == [{"name": "own", "value": "1"}]


def test_the_origin_of_a_letter() -> None:
    headers: list[tuple[str, bytes | None]] = [
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"2"),
        ("__dlq.errors.offset", b"7"),
    ]
    assert origin_of(headers) == Origin("t", 2, 7)
    assert origin_of(headers[:2]) is None
    assert origin_of([*headers[:2], ("__dlq.errors.offset", b"x")]) is None
