"""`penstock produce`: lines, files and JSON become messages."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.running import WAIT_S, Command, interruptible, lines


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


def test_bad_input_is_refused_where_it_stands(penstock: Command) -> None:
    penstock("topic", "create", "bad-input")
    done = penstock("produce", "bad-input", "-K", ":", input="a:1\nb\n")
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: standard input line 2: no ':' between key and value")
    large = penstock("produce", "bad-input", input="x" * 2_000_000)
    assert large.returncode == 1
    assert "max.message.bytes" in large.stderr


def test_a_compacted_topic_needs_keys(penstock: Command) -> None:
    penstock("topic", "create", "keyed", "--config", "cleanup.policy=compact")
    done = penstock("produce", "keyed", input="no key\n")
    assert done.returncode == 1
    (line,) = lines(done.stderr)
    assert "need keys: give --key-separator or --key" in line
    assert penstock("produce", "keyed", "--key", "k", input="v\n").returncode == 0


@pytest.mark.process
def test_interrupting_produce_sends_all_read_lines(penstock: Command, broker: str) -> None:
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
