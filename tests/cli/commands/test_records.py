"""`penstock records delete`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.running import Command


@pytest.fixture
def topic(penstock: Command, request: pytest.FixtureRequest) -> str:
    name = f"records-{abs(hash(request.node.name))}"
    assert penstock("topic", "create", name, "--partitions", "2").returncode == 0
    assert penstock("produce", name, "--partition", "1", input="a\nb\nc\nd\n").returncode == 0
    return name


def deleted(penstock: Command, *arguments: str) -> list[dict[str, Any]]:
    done = penstock("records", "delete", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["partitions"]
    return found


def left(penstock: Command, topic: str) -> list[str]:
    return penstock("consume", topic, "--from-beginning", "--exit-at-end").stdout.splitlines()


def test_messages_before_an_offset(penstock: Command, topic: str) -> None:
    arguments = [topic, "--partition", "1", "--before-offset", "3"]
    rows = [{"partition": 1, "start": 0, "new_start": 3, "deleted": 3}]
    assert deleted(penstock, *arguments, "--dry-run") == rows
    assert left(penstock, topic) == ["a", "b", "c", "d"]
    assert deleted(penstock, *arguments) == rows
    assert left(penstock, topic) == ["d"]


def test_all_messages(penstock: Command, topic: str) -> None:
    assert [row["deleted"] for row in deleted(penstock, topic, "--all")] == [0, 4]
    assert left(penstock, topic) == []
    assert [row["deleted"] for row in deleted(penstock, topic, "--all")] == [0, 0]


def test_messages_before_a_time(penstock: Command, topic: str) -> None:
    assert [row["deleted"] for row in deleted(penstock, topic, "--before-time", "1000")] == [0, 0]
    assert [row["deleted"] for row in deleted(penstock, topic, "--before-time", "2200-01-01T00:00:00Z")] == [
        0,
        4,
    ]


def test_an_offset_beyond_the_end_deletes_nothing(penstock: Command, topic: str) -> None:
    done = penstock("records", "delete", topic, "--before-offset", "3")
    assert done.returncode == 1
    assert f"--before-offset 3 is beyond the end of {topic} partition 0, 0: correct it" in done.stderr
    assert left(penstock, topic) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["missing", "--all"], 1, "no topic missing"),
        (["missing"], 2, "give one of --before-offset, --before-time and --all"),
        (["missing", "--all", "--before-offset", "1"], 2, "give one of"),
    ],
)
def test_impossible_deletions_are_refused(
    penstock: Command, arguments: list[str], code: int, said: str
) -> None:
    done = penstock("records", "delete", *arguments)
    assert (done.returncode, said in done.stderr) == (code, True)


def test_a_partition_that_is_missing(penstock: Command, topic: str) -> None:
    done = penstock("records", "delete", topic, "--all", "--partition", "7")
    assert done.returncode == 1 and "has no partition 7: its partitions are 0 to 1" in done.stderr
