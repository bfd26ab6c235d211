"""Groups through the command: joined, listed, described, moved and deleted, against a broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.broker.raw import RawClient
from tests.broker.streams_groups import StreamsMember, counting
from tests.cli.running import PENSTOCK, WAIT_S, Command
from tests.waiting import eventually

_numbers = count()


@pytest.fixture
def topic(penstock: Command) -> str:
    """Two partitions, the first with the messages 0 to 9 a little after as many seconds since 1970."""
    name = f"grouped-{next(_numbers)}"
    penstock("topic", "create", name, "--partitions", "2")
    rows = "".join(f'{{"value":"{n}","timestamp":{n * 1000 + 1}}}\n' for n in range(10))
    sent = penstock("produce", name, "--format", "json", "--partition", "0", input=rows)
    assert sent.returncode == 0, sent.stderr
    return name


@pytest.fixture
def group() -> str:
    return f"cli-group-{next(_numbers)}"


@contextmanager
def live_member(broker: str, group: str, topic: str, **config: str) -> Iterator[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker, "group.id": group, "client.id": "alive", "log_level": 0}
        | {"enable.auto.commit": "false"}
        | {key.replace("_", "."): value for key, value in config.items()}
    )
    consumer.subscribe([topic])
    try:
        for _ in range(WAIT_S * 10):
            consumer.poll(0.1)
            if len(consumer.assignment()) == 2:
                break
        yield consumer
    finally:
        consumer.close()


def offsets(penstock: Command, group: str) -> dict[int, int | None]:
    (described,) = json.loads(penstock("group", "describe", group, "--json").stdout)
    return {p["partition"]: p["committed"] for p in described["partitions"] if p["committed"] is not None}


def read(penstock: Command, topic: str, group: str, *arguments: str) -> list[str]:
    done = penstock("consume", topic, "--group", group, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_consume_goes_on_where_its_group_is(penstock: Command, topic: str, group: str) -> None:
    assert read(penstock, topic, group, "--from-beginning", "--count", "3") == ["0", "1", "2"]
    assert read(penstock, topic, group, "--count", "2") == ["3", "4"]
    assert read(penstock, topic, group, "--exit-at-end") == ["5", "6", "7", "8", "9"]
    assert read(penstock, topic, group, "--exit-at-end", "--from-beginning") == []
    assert offsets(penstock, group)[0] == 10


def test_partitions_without_a_committed_offset_start_at_their_end(
    penstock: Command, topic: str, group: str
) -> None:
    assert read(penstock, topic, group, "--exit-at-end") == []


@pytest.mark.process
def test_unprinted_messages_are_not_committed(penstock: Command, broker: str, group: str) -> None:
    name = f"grouped-{next(_numbers)}"
    penstock("topic", "create", name)
    penstock("produce", name, input="x\n" * 50_000)
    arguments = ["consume", name, "--group", group, "--from-beginning", "--bootstrap", broker]
    with subprocess.Popen(
        [*PENSTOCK, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "x\n"
        process.stdout.close()
        assert process.wait(WAIT_S) == 0
    committed = offsets(penstock, group).get(0) or 0
    assert committed < 50_000
    assert len(read(penstock, name, group, "--from-beginning", "--exit-at-end")) == 50_000 - committed


def test_a_group_has_its_own_place(penstock: Command, topic: str, group: str) -> None:
    for more in (["--offset", "1"], ["--partition", "0"], ["--timestamp", "5"]):
        done = penstock("consume", topic, "--group", group, *more)
        assert done.returncode == 2
        assert "penstock group reset-offsets" in done.stderr


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_groups_members_and_lag(
    penstock: Command, broker: str, topic: str, group: str, protocol: str
) -> None:
    read(penstock, topic, group, "--from-beginning", "--count", "4")
    with live_member(broker, group, topic, group_protocol=protocol, group_instance_id="desk") as consumer:

        def describe() -> Any:
            (described,) = json.loads(penstock("group", "describe", group, "--json").stdout)
            return described

        # The broker learns from the next heartbeat that the member has taken its partitions.
        eventually(lambda: describe()["state"] == "stable")
        described = describe()
        (member,) = described["members"]
        assert member == {
            "member": consumer.memberid(),
            "client": "alive",
            "host": "127.0.0.1",
            "instance": "desk",
            "partitions": [f"{topic}:0", f"{topic}:1"],
        }
        assert (described["group"], described["type"], described["state"]) == (group, protocol, "stable")
        first, second = described["partitions"]
        assert first == {
            "topic": topic,
            "partition": 0,
            "committed": 4,
            "end": 10,
            "lag": 6,
            "member": consumer.memberid(),
        }
        assert (second["committed"], second["end"], second["lag"]) == (None, 0, 0)
        shown = penstock("group", "describe", group).stdout
        assert f"{group}  {protocol}, stable" in shown
        assert "desk" in shown

        listed = json.loads(penstock("group", "list", "--json").stdout)
        assert {"group": group, "type": protocol, "state": "stable"} in listed
        refused = penstock("group", "delete", group)
        assert (refused.returncode, "stop its members first" in refused.stderr) == (1, True)
        refused = penstock("group", "reset-offsets", group, "--to-latest", "--execute")
        assert (refused.returncode, "stop them first" in refused.stderr) == (1, True)
    assert offsets(penstock, group)[0] == 4


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "7"], 7),
        (["--to-offset", "700"], 10),
        (["--to-datetime", "2500"], 3),
        (["--to-datetime", "1970-01-01T00:00:07.500Z"], 8),
        (["--to-datetime", "2030-01-01"], 10),
        (["--shift-by", "2"], 6),
        (["--shift-by", "-1"], 3),
        (["--shift-by", "-100"], 0),
    ],
)
def test_a_groups_offsets_are_moved(
    penstock: Command, topic: str, group: str, target: list[str], expected: int
) -> None:
    read(penstock, topic, group, "--from-beginning", "--count", "4")
    dry = penstock("group", "reset-offsets", group, *target)
    assert dry.returncode == 0
    assert "nothing was changed" in dry.stderr
    assert offsets(penstock, group)[0] == 4
    done = penstock("group", "reset-offsets", group, *target, "--execute", "--json")
    assert json.loads(done.stdout) == {
        "group": group,
        "executed": True,
        "offsets": [{"topic": topic, "partition": 0, "committed": 4, "new": expected}],
    }
    assert offsets(penstock, group) == {0: expected}


def test_partitions_to_move_can_be_chosen(penstock: Command, topic: str, group: str) -> None:
    def chosen(*topics: str) -> list[tuple[str, int]]:
        flags = [flag for name in topics for flag in ("--topic", name)]
        done = penstock("group", "reset-offsets", group, "--to-earliest", "--json", *flags)
        assert done.returncode == 0, done.stderr
        return [(row["topic"], row["partition"]) for row in json.loads(done.stdout)["offsets"]]

    assert chosen(topic) == [(topic, 0), (topic, 1)]
    assert chosen(f"{topic}:1") == [(topic, 1)]
    assert chosen(f"{topic}:1,0", topic) == [(topic, 0), (topic, 1)]
    made = penstock("group", "reset-offsets", group, "--to-offset", "2", "-t", f"{topic}:0", "--execute")
    assert made.returncode == 0
    assert read(penstock, topic, group, "--count", "1") == ["2"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "name a target"),
        (["--to-latest", "--to-earliest"], 2, "name a target"),
        (["--to-datetime", "soon"], 2, "--to-datetime 'soon' is neither"),
        (["--to-latest"], 1, "has committed nothing: name topics with --topic"),
        (["--to-latest", "--topic", "TOPIC:x"], 2, "is not TOPIC or TOPIC:PARTITION"),
        (["--to-latest", "--topic", "TOPIC:2"], 1, "has no partition 2: its partitions are 0 to 1"),
        (["--to-latest", "--topic", "absent"], 1, "no topic absent"),
        (["--shift-by", "1", "--topic", "TOPIC"], 1, "partition 0 has no committed offset to shift"),
    ],
)
def test_offsets_that_cannot_be_reset_are_named(
    penstock: Command, topic: str, group: str, arguments: list[str], code: int, message: str
) -> None:
    done = penstock("group", "reset-offsets", group, *(a.replace("TOPIC", topic) for a in arguments))
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_groups_are_deleted(penstock: Command, topic: str, group: str) -> None:
    read(penstock, topic, group, "--from-beginning", "--count", "1")
    assert penstock("group", "delete", group).stdout == f"deleted {group}\n"
    assert group not in penstock("group", "list").stdout
    assert penstock("group", "delete", group, "--if-exists").stdout == f"missing {group}\n"
    for command in ("delete", "describe"):
        missing = penstock("group", command, group)
        assert missing.returncode == 1
        assert "`penstock group list` lists the groups" in missing.stderr


def test_offsets_of_a_topic_that_is_gone_have_no_lag(penstock: Command, topic: str, group: str) -> None:
    """Penstock drops them with the topic; other brokers may show them for a while."""
    read(penstock, topic, group, "--from-beginning", "--count", "1")
    penstock("topic", "create", f"{topic}-other")
    penstock("group", "reset-offsets", group, "-t", f"{topic}-other", "--to-latest", "--execute")
    penstock("topic", "delete", topic)
    (described,) = json.loads(penstock("group", "describe", group, "--json").stdout)
    assert {p["topic"]: p["lag"] for p in described["partitions"]}.get(topic) is None


def test_a_streams_group_is_listed_described_moved_and_deleted(
    penstock: Command, broker: str, topic: str, group: str
) -> None:
    """KIP-1071: librdkafka knows neither its type nor its members."""
    repartition = f"{group}-counts-repartition"
    with RawClient(broker) as client:
        member = StreamsMember(client, group, counting(topic, group))
        while sum(map(len, member.active.values())) != 4:
            assert not member.beat().error_code
        rows = json.loads(penstock("group", "list", "--json").stdout)
        assert {"group": group, "type": "streams", "state": "stable"} in rows
        (described,) = json.loads(penstock("group", "describe", group, "--json").stdout)
        assert (described["type"], described["state"]) == ("streams", "stable")
        (shown,) = described["members"]
        assert (shown["member"], shown["active"]) == (member.id, ["0_0", "0_1", "1_0", "1_1"])
        assert {(p["topic"], p["partition"], p["member"]) for p in described["partitions"]} == {
            (name, partition, member.id) for name in (topic, repartition) for partition in (0, 1)
        }
        lags = [p["lag"] for p in described["partitions"] if p["topic"] == topic]
        assert lags == [10, 0]
        member.leave()
    moved = penstock("group", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute", "--yes")
    assert moved.returncode == 0, moved.stderr
    assert offsets(penstock, group)[0] == 10
    assert "streams, empty" in penstock("group", "describe", group).stdout
    deleted = penstock("group", "delete", group, "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert penstock("group", "describe", group).returncode == 1
