"""The command of a Kafka broker with a clock that can be set."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import kafka_clock

CLOCK = Path("/clocks/1")


@pytest.fixture(autouse=True)
def without_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clock, "kafka_classpath", lambda: "/kafka/*")
    monkeypatch.setattr(kafka_clock, "_classes", lambda: "/clock")


def test_the_class_of_the_clock_comes_before_those_of_kafka() -> None:
    command = kafka_clock.with_clock(["java", "-Xmx1g", "-cp", "/kafka/*", "kafka.Kafka"], CLOCK)
    assert command == ["java", "-Dlab.clock=/clocks/1", "-Xmx1g", "-cp", "/clock:/kafka/*", "kafka.Kafka"]


def test_a_clock_replaces_the_one_before() -> None:
    plain = ["java", "-cp", "/kafka/*", "kafka.Kafka"]
    once = kafka_clock.with_clock(plain, CLOCK)
    assert kafka_clock.with_clock(once, CLOCK) == once
    assert kafka_clock.with_clock(once, None) == plain
