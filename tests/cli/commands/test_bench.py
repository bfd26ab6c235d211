"""`penstock bench`."""

from __future__ import annotations

import json

from tests.cli.running import Command

SHORT = ["--duration", "0.5", "--rate", "200", "--timeout", "60"]


def test_a_new_topic_is_used_and_deleted(penstock: Command) -> None:
    done = penstock("bench", *SHORT, "--partitions", "2", "--consumers", "2", "--keys", "3", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["partitions"] == 2 and found["acks"] == "all"
    assert found["sent"] == found["acknowledged"] == found["received"] > 0
    assert 0 < found["end_to_end_ms"]["p50"] <= found["end_to_end_ms"]["p99"] <= found["end_to_end_ms"]["max"]
    assert sum(row["count"] for row in found["end_to_end_ms"]["histogram_us"]) == found["received"]
    assert found["topic"] not in penstock("topic", "list").stdout


def test_an_existing_topic_keeps_the_messages(penstock: Command) -> None:
    assert penstock("topic", "create", "kept").returncode == 0
    done = penstock("bench", "kept", *SHORT, "--consumers", "0", "--acks", "1", "--json")
    assert done.returncode == 0, done.stderr
    read = penstock("consume", "kept", "--from-beginning", "--exit-at-end", "--format", "json")
    assert len(read.stdout.splitlines()) == json.loads(done.stdout)["acknowledged"]


def test_the_report_has_latencies_and_a_plot(penstock: Command) -> None:
    done = penstock("bench", *SHORT)
    assert done.returncode == 0, done.stderr
    assert "messages acknowledged in" in done.stdout
    assert "p99.9" in done.stdout and "\nend to end\n" in done.stdout and "█" in done.stdout


def test_failed_messages_are_a_failure(penstock: Command) -> None:
    assert penstock("topic", "create", "tight", "-c", "max.message.bytes=60").returncode == 0
    done = penstock("bench", "tight", *SHORT)
    assert done.returncode == 1
    assert "messages failed: " in done.stderr


def test_wrong_usage(penstock: Command) -> None:
    assert penstock("bench", "missing").returncode == 1
    assert penstock("bench", "missing", "--partitions", "3").returncode == 2
    assert penstock("bench", "--size", "7").returncode == 2
