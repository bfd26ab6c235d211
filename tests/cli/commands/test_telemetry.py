"""`penstock telemetry`: collectors against a broker, and what they say at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.telemetry.message import MalformedSample, decode
from tests.cli.running import PENSTOCK, WAIT_S, Command


def reader() -> Consumer:
    settings = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    return Consumer({"bootstrap.servers": os.environ["PENSTOCK_BOOTSTRAP"], **settings})


def stored(topic: str) -> list[Any]:
    """All messages of a topic without further writers."""
    consumer = reader()
    partitions = consumer.list_topics(topic, 60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    messages: list[Any] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                messages.append(message)
            else:
                ended.add(message.partition())
    consumer.close()
    return messages


def await_first(topic: str, process: subprocess.Popen[bytes]) -> None:
    """Until something has arrived in the topic's only partition."""
    consumer = reader()
    while not consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1]:
        assert process.poll() is None
    consumer.close()


def test_a_simulated_fleet(penstock: Command, tmp_path: Path) -> None:
    labels = tmp_path / "faults.jsonl"
    arguments = [
        "--hosts",
        "2",
        "--duration",
        "100",
        "--speed",
        "0",
        "--labels",
        str(labels),
        "--topic",
        "sim",
    ]
    dirt = ["--duplicates", "0.05", "--malformed", "0.05", "--sentinels", "0.05", "--out-of-order", "0.05"]
    done = penstock("telemetry", "simulate", *arguments, *dirt, "--partitions", "3", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    ways = ("clean", "late", "out_of_order", "duplicates", "malformed", "sentinels")
    assert summary["acknowledged"] == summary["sent"] == sum(summary[way] for way in ways)
    messages = stored("sim")
    assert len(messages) == summary["sent"]
    assert {message.partition() for message in messages} == {0, 1, 2}
    malformed = 0
    for message in messages:
        assert message.headers() == [
            ("source", b"simulate"),
            ("version", b"1.0"),
            ("content-type", b"application/json"),
        ]
        try:
            assert decode(message.value()).gpu_id.encode() == message.key()
        except MalformedSample:
            malformed += 1
    assert malformed == summary["malformed"]
    assert len(labels.read_text().splitlines()) == sum(summary["faults"].values()) > 0


def test_one_gpu_stays_in_one_partition(penstock: Command) -> None:
    penstock(
        "telemetry",
        "simulate",
        "--hosts",
        "1",
        "--duration",
        "20",
        "--speed",
        "0",
        "--faults",
        "0",
        "--topic",
        "sim-keys",
    )
    messages = stored("sim-keys")
    assert len(messages) == 8 * 40 * 2
    places = {(message.key(), message.partition()) for message in messages}
    assert len(places) == 8


@pytest.mark.process
def test_sigterm_ends_it_with_an_exact_summary(penstock: Command) -> None:
    penstock("topic", "create", "sim-stop", "--partitions", "1")
    endless = ["telemetry", "simulate", "--hosts", "2", "--interval", "0.5", "--topic", "sim-stop", "--json"]
    process = subprocess.Popen([*PENSTOCK, *endless], stdout=subprocess.PIPE)
    try:
        await_first("sim-stop", process)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.communicate()
    summary = json.loads(output)
    assert process.returncode == 0
    assert summary["acknowledged"] == summary["sent"] == len(stored("sim-stop"))


def test_the_capture_that_comes_along(penstock: Command) -> None:
    done = penstock(
        "telemetry", "replay", "sample:h200", "--speed", "0", "--hostname", "h200", "--topic", "rec", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["acknowledged"] == summary["sent"] == summary["samples"] == 676 * 28
    messages = stored("rec")
    assert len(messages) == 676 * 28
    assert {message.key() for message in messages} == {b"GPU-a96f7a21-5cb2-b38d-b51c-def811237f69"}
    assert decode(messages[0].value()).hostname == "h200"
    # It is old, and stays: its records have the time of their arrival.
    assert messages[0].timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME
    assert (done.stderr, "warning" in summary) == ("", False)


def test_a_topic_that_would_not_keep_a_recording(penstock: Command) -> None:
    admin = AdminClient({"bootstrap.servers": os.environ["PENSTOCK_BOOTSTRAP"]})
    hour = {"retention.ms": "3600000", "message.timestamp.type": "CreateTime"}
    admin.create_topics([NewTopic("hour", 1, config=hour)])["hour"].result(timeout=60)
    done = penstock("telemetry", "replay", "sample:h200", "--speed", "0", "--topic", "hour", "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("topic hour keeps records for 1 h by their own time")
    assert json.loads(done.stdout)["warning"] == line


def test_the_host_itself(penstock: Command) -> None:
    done = penstock("telemetry", "host", "--rounds", "2", "--interval", "0.1", "--hostname", "h", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    messages = stored("system-metrics")
    assert summary["acknowledged"] == summary["samples"] == len(messages)
    names = {json.loads(message.value())["metric_name"] for message in messages}
    assert names >= {"system_load1", "system_memory_used_bytes"}


def test_a_target_that_is_down(penstock: Command) -> None:
    done = penstock("telemetry", "scrape", "127.0.0.1:1", "--rounds", "1", "--topic", "scraped")
    assert done.returncode == 0
    assert done.stderr.startswith("127.0.0.1:1: ")
    assert "failures       1" in done.stderr
    (message,) = stored("scraped")
    assert (decode(message.value()).field.name, decode(message.value()).value) == ("up", 0.0)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["simulate", "--late", "0.6", "--malformed", "0.6"], "must not exceed 1 together"),
        (["simulate", "--start", "soon"], "--start 'soon' is neither milliseconds nor a time"),
        (["simulate", "--labels", "/nowhere/faults"], "No such file or directory: '/nowhere/faults'"),
        (["replay", "no-such.csv"], "no-such.csv is not a file"),
        (["replay", __file__], "neither a DCGM snapshot"),
        (["replay", __file__, "--shard", "2/2"], "--shard '2/2' is not I/N"),
        (["scrape"], "nothing to scrape: give URLs, or --targets FILE"),
        (["scrape", "ftp://x"], "'ftp://x' is neither HOST:PORT nor an http URL"),
        (["scrape", "--targets", "no-such.yaml"], "cannot read no-such.yaml"),
        (["scrape", "a:1", "--interval", "1"], "must fit into --interval"),
    ],
)
def test_an_error_is_one_line(penstock: Command, arguments: list[str], complaint: str) -> None:
    done = penstock("telemetry", *arguments, "--topic", "never")
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("penstock: ")
    assert complaint in line


def test_without_nvml_the_command_names_the_missing_package(
    penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    done = penstock("telemetry", "nvml")
    assert done.returncode == 1
    assert done.stderr == "penstock: nvidia-ml-py is missing: pip install 'penstock-mq[telemetry]'\n"
