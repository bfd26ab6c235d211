"""A wall clock of Apache Kafka that can be set: a class in the place of Kafka's own `SystemTime`.

Why: a library that is loaded before the C library (libfaketime) also moves the timers of the JVM.
Clusters did not start with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.apache_kafka import kafka_classpath
from lab.home import built, command, lab_root, require

__all__ = ["with_clock"]

_SOURCE = Path(__file__).with_name("SystemTime.java")
_OPTION = "-Dlab.clock="
_CLASSPATH = "-cp"


def with_clock(broker: Sequence[str], clock: Path | None) -> list[str]:
    """The command of a broker whose wall clock is ahead by the milliseconds in `clock`, or Kafka's own clock.

    Replaces the clock that the command has.
    """
    plain = [option for option in broker if not option.startswith(_OPTION)]
    at = plain.index(_CLASSPATH) + 1
    plain[at] = kafka_classpath()
    if clock is None:
        return plain
    plain[at] = f"{_classes()}:{plain[at]}"
    return [plain[0], f"{_OPTION}{clock}", *plain[1:]]


def _classes() -> Path:
    kafka = kafka_classpath()

    def build(folder: Path) -> None:
        require("javac")
        command(["javac", "-d", folder, "-cp", kafka, _SOURCE], folder)

    return built(lab_root() / "kafka-clock", [_SOURCE.read_text(), kafka], build)
