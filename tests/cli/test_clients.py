"""Topics, messages and configs through the command, against a broker."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import PENSTOCK, WAIT_S, Command, run


def lines(text: str) -> list[str]:
    return text.splitlines()


@pytest.mark.process
def test_no_broker_is_said_at_once_and_only_once() -> None:
    done = run("topic", "list", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 1
    assert lines(done.stderr) == [
        "penstock: no broker answers at 127.0.0.1:1: start one with `penstock up`, "
        "or name another with --bootstrap"
    ]


@pytest.mark.process
def test_version() -> None:
    done = run("version", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout).keys() == {"penstock", "python", "librdkafka"}


def test_a_topics_life(penstock: Command) -> None:
    created = penstock("topic", "create", "life", "--partitions", "2", "--config", "retention.ms=5000")
    assert (created.returncode, created.stdout) == (0, "created life\n")

    again = penstock("topic", "create", "life")
    assert again.returncode == 1
    assert again.stderr.startswith("penstock: life: ")
    assert "--if-not-exists" in again.stderr
    assert penstock("topic", "create", "life", "--if-not-exists").stdout == "exists life\n"

    listed = json.loads(penstock("topic", "list", "--json").stdout)
    assert {"topic": "life", "partitions": 2, "replicas": 1} in listed

    assert penstock("topic", "alter", "life", "--partitions", "3").returncode == 0
    assert penstock("topic", "alter", "life", "--partitions", "1").returncode == 1

    (described,) = json.loads(penstock("topic", "describe", "life", "--json").stdout)
    assert described["configs"] == {"retention.ms": "5000"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert all((p["start"], p["end"]) == (0, 0) for p in described["partitions"])
    times = [datetime.fromisoformat(described[name]) for name in ("created", "changed")]
    assert times[0] <= times[1] <= datetime.now(UTC)
    shown = penstock("topic", "describe", "life").stdout
    assert "life  id" in shown
    assert f"created {described['created']}  changed {described['changed']}\n" in shown
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", described["id"])

    assert penstock("topic", "delete", "life").stdout == "deleted life\n"
    assert penstock("topic", "delete", "life").returncode == 1
    assert penstock("topic", "delete", "life", "--if-exists").stdout == "missing life\n"
    assert penstock("topic", "describe", "life").returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [("create", "t", "-p", "-3"), ("create", "t", "--replication-factor", "-2"), ("alter", "t", "-p", "-1")],
)
def test_numbers_that_cannot_be(penstock: Command, arguments: tuple[str, ...]) -> None:
    refused = penstock("topic", *arguments)
    assert refused.returncode == 2
    assert "is not in the range" in refused.stderr


def test_a_name_that_cannot_be(penstock: Command) -> None:
    refused = penstock("topic", "create", "no spaces, please")
    assert refused.returncode == 1
    assert "choose another name" in refused.stderr


def test_validate_only_creates_nothing(penstock: Command) -> None:
    assert penstock("topic", "create", "checked", "--validate-only").stdout == "valid checked\n"
    assert "checked" not in penstock("topic", "list").stdout
    refused = penstock("topic", "create", "checked", "--validate-only", "--config", "retention.msx=1")
    assert refused.returncode == 1
    assert "retention.ms" in refused.stderr


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_messages_there_and_back(penstock: Command, compression: str) -> None:
    topic = f"messages-{compression}"
    penstock("topic", "create", topic)
    sent = penstock(
        "produce", topic, "-K", ":", "-H", "source=test", "-z", compression, input="a:1\nb:2\r\nc:\n"
    )
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "", "produced 3 messages, 2 bytes\n")
    read = penstock("consume", topic, "--from-beginning", "--exit-at-end", "--json")
    messages = [json.loads(line) for line in lines(read.stdout)]
    assert [(m["key"], m["value"], m["offset"]) for m in messages] == [
        ("a", "1", 0),
        ("b", "2", 1),
        ("c", "", 2),
    ]
    assert all(m["headers"] == [{"name": "source", "value": "test"}] for m in messages)


def test_files_are_produced_in_order(penstock: Command, tmp_path: Path) -> None:
    penstock("topic", "create", "files")
    paths = [tmp_path / "one", tmp_path / "two"]
    for number, path in enumerate(paths):
        path.write_text(f"{number}-first\n{number}-second")
    sent = penstock("produce", "files", *map(str, paths), "--json", "--idempotent")
    assert json.loads(sent.stdout) == {"topic": "files", "produced": 4, "bytes": 30}
    read = penstock("consume", "files", "--from-beginning", "--exit-at-end")
    assert lines(read.stdout) == ["0-first", "0-second", "1-first", "1-second"]
    missing = penstock("produce", "files", str(tmp_path / "three"))
    assert missing.returncode == 1
    assert "cannot read" in missing.stderr


def test_a_topic_can_be_copied_as_json(penstock: Command) -> None:
    penstock("topic", "create", "original", "copied")
    penstock("produce", "original", "-f", "json", input='{"key":"k","value":null}\n{"value_base64":"/w=="}\n')
    original = penstock("consume", "original", "--from-beginning", "-e", "--json").stdout
    assert penstock("produce", "copied", "-f", "json", input=original).returncode == 0
    copied = penstock("consume", "copied", "--from-beginning", "-e", "--json").stdout
    assert copied == original.replace('"original"', '"copied"')


def test_a_topic_with_several_partitions_can_be_copied(penstock: Command) -> None:
    """Into a topic with fewer partitions, where keys decide, and into one with as many, where they stay."""
    penstock("topic", "create", "wide", "wide-copy", "--partitions", "3")
    penstock("topic", "create", "narrow", "--partitions", "1")
    rows = "".join(f'{{"value":"{n}","partition":{n % 3}}}\n' for n in range(6))
    assert penstock("produce", "wide", "-f", "json", "--keep-partitions", input=rows).returncode == 0
    original = penstock("consume", "wide", "--from-beginning", "-e", "--json").stdout

    assert penstock("produce", "narrow", "-f", "json", input=original).returncode == 0
    assert len(lines(penstock("consume", "narrow", "--from-beginning", "-e").stdout)) == 6
    assert penstock("produce", "wide-copy", "-f", "json", "--keep-partitions", input=original).returncode == 0
    copied = penstock("consume", "wide-copy", "--from-beginning", "-e", "--json").stdout
    assert sorted(lines(copied)) == sorted(lines(original.replace('"wide"', '"wide-copy"')))

    refused = penstock("produce", "narrow", "-f", "json", "--keep-partitions", input=original)
    assert refused.returncode == 1
    assert "create the topic with more partitions" in refused.stderr
    misused = penstock("produce", "narrow", "--keep-partitions", input="x\n")
    assert misused.returncode == 2


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


def test_bad_input_is_refused_where_it_stands(penstock: Command) -> None:
    penstock("topic", "create", "bad-input")
    done = penstock("produce", "bad-input", "-K", ":", input="a:1\nb\n")
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: standard input line 2: no ':' between key and value")
    large = penstock("produce", "bad-input", input="x" * 2_000_000)
    assert large.returncode == 1
    assert "max.message.bytes" in large.stderr


def test_a_compacted_topic_asks_for_keys(penstock: Command) -> None:
    penstock("topic", "create", "keyed", "--config", "cleanup.policy=compact")
    done = penstock("produce", "keyed", input="no key\n")
    assert done.returncode == 1
    (line,) = lines(done.stderr)
    assert "need keys: give --key-separator or --key" in line
    assert penstock("produce", "keyed", "--key", "k", input="v\n").returncode == 0


def test_consuming_what_is_not_there_does_not_create_it(penstock: Command) -> None:
    done = penstock("consume", "absent")
    assert (done.returncode, done.stdout) == (1, "")
    assert "penstock topic create absent" in done.stderr
    assert "absent" not in penstock("topic", "list").stdout
    penstock("topic", "create", "present")
    assert penstock("consume", "present", "--partition", "5").stderr == (
        "penstock: present has no partition 5: its partitions are 0 to 0\n"
    )


def test_topic_configs(penstock: Command) -> None:
    penstock("topic", "create", "configured")
    whose = ("--topic", "configured")
    done = penstock("config", "set", *whose, "retention.ms=7", "cleanup.policy=compact,delete")
    assert (done.returncode, lines(done.stdout)) == (
        0,
        ["set retention.ms=7", "set cleanup.policy=compact,delete"],
    )
    shown = json.loads(penstock("config", "describe", *whose, "--json").stdout)
    of_the_topic, of_all_brokers = "DYNAMIC_TOPIC_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert {(entry["name"], entry["value"], entry["source"]) for entry in shown} == {
        ("retention.ms", "7", of_the_topic),
        ("cleanup.policy", "compact,delete", of_the_topic),
        ("min.insync.replicas", "1", of_all_brokers),
    }
    assert penstock("config", "unset", *whose, "retention.ms", "cleanup.policy").returncode == 0
    (left,) = json.loads(penstock("config", "describe", *whose, "--json").stdout)
    assert left["name"] == "min.insync.replicas"
    everything = penstock("config", "describe", *whose, "--all").stdout
    assert "segment.bytes" in everything
    refused = penstock("config", "set", *whose, "retention.ms=soon")
    assert refused.returncode == 1
    assert "retention.ms" in refused.stderr


def test_broker_configs(penstock: Command) -> None:
    assert penstock("config", "set", "--broker", "1", "message.max.bytes=2000000").returncode == 0
    shown = json.loads(penstock("config", "describe", "--broker", "1", "--json").stdout)
    (entry,) = [entry for entry in shown if entry["name"] == "message.max.bytes"]
    assert (entry["value"], entry["source"]) == ("2000000", "DYNAMIC_BROKER_CONFIG")
    assert penstock("config", "unset", "--broker", "1", "message.max.bytes").returncode == 0
    refused = penstock("config", "set", "--broker", "1", "node.id=2")
    assert refused.returncode == 1
    assert "node.id" in refused.stderr


def test_configs_of_all_brokers(penstock: Command) -> None:
    before = json.loads(penstock("config", "describe", "--all-brokers", "--json").stdout)
    assert [entry["name"] for entry in before] == ["min.insync.replicas"]
    done = penstock("config", "set", "--all-brokers", "message.max.bytes=2000000")
    assert (done.returncode, done.stdout) == (0, "set message.max.bytes=2000000\n")
    (entry, *others) = json.loads(penstock("config", "describe", "--all-brokers", "--json").stdout)
    assert others == before
    assert (entry["name"], entry["value"]) == ("message.max.bytes", "2000000")
    of_one = json.loads(penstock("config", "describe", "--broker", "1", "--json").stdout)
    assert entry in of_one
    assert entry["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    refused = penstock("config", "set", "--all-brokers", "node.id=2")
    assert (refused.returncode, "node.id" in refused.stderr) == (1, True)
    assert penstock("config", "unset", "--all-brokers", "message.max.bytes").returncode == 0
    assert json.loads(penstock("config", "describe", "--all-brokers", "--json").stdout) == before
    assert penstock("config", "unset", "--all-brokers", "min.insync.replicas").returncode == 1
    assert penstock("config", "describe", "--all-brokers", "--broker", "1").returncode == 2


def test_a_broker_that_there_is_not(penstock: Command) -> None:
    for refused in (
        penstock("config", "describe", "--broker", "7"),
        penstock("config", "set", "--broker", "7", "message.max.bytes=2000000"),
    ):
        assert (refused.returncode, refused.stderr) == (1, "penstock: no broker 7: the cluster has 1\n")


def test_group_configs(penstock: Command) -> None:
    assert penstock("config", "set", "--group", "g", "consumer.session.timeout.ms=50000").returncode == 0
    (entry,) = json.loads(penstock("config", "describe", "--group", "g", "--json").stdout)
    assert (entry["name"], entry["value"]) == ("consumer.session.timeout.ms", "50000")
    assert penstock("config", "unset", "--group", "g", "consumer.session.timeout.ms").returncode == 0
    assert (
        penstock("config", "describe", "--group", "g").stderr
        == "all configs have their defaults: --all shows them\n"
    )
    asked_twice = penstock("config", "describe", "--group", "g", "--topic", "t")
    assert asked_twice.returncode == 2


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


@contextmanager
def interruptible(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    # A test run in the background may have SIGINT ignored, and children would inherit that.
    with subprocess.Popen(
        [*PENSTOCK, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        yield process


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


@pytest.mark.process
def test_interrupting_produce_sends_what_was_read(penstock: Command, broker: str) -> None:
    penstock("topic", "create", "typed")
    with interruptible("produce", "typed", "--bootstrap", broker) as process:
        assert process.stdin is not None
        process.stdin.write("x\n")
        process.stdin.flush()
        read = penstock("consume", "typed", "--from-beginning", "--count", "1", "--timeout", str(WAIT_S))
        assert read.stdout == "x\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert process.stderr is not None
        assert process.stderr.read() == "penstock: interrupted after 1 messages\n"


def test_an_unknown_broker_config_is_stored_with_a_warning(penstock: Command) -> None:
    done = penstock("config", "set", "--all-brokers", "log.retention.hour=5")
    assert (done.returncode, done.stdout) == (0, "set log.retention.hour=5\n")
    assert done.stderr.startswith(
        "penstock: warning: Unknown broker config name: log.retention.hour; did you mean log.retention.hours?"
    )
    assert penstock("config", "unset", "--all-brokers", "log.retention.hour").stderr == ""
    known = penstock("config", "set", "--all-brokers", "log.retention.ms=5000")
    assert (known.returncode, known.stderr) == (0, "")
    assert penstock("config", "unset", "--all-brokers", "log.retention.ms").returncode == 0
