"""The folder that tests know as `KAFKA_PATH`: scripts under the names of Kafka's command-line tools.

Against Apache Kafka they are its own tools; against Penstock they are thin translations to our own.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.apache_kafka import tool

REPOSITORY = Path(__file__).resolve().parent.parent
KAFKA_CLASSES = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}


def kafka_tools(folder: Path) -> Path:
    """Kafka's own tools, from its jars."""
    return _scripts(folder, {name: tool(main_class) for name, main_class in KAFKA_CLASSES.items()})


def penstock_tools(folder: Path) -> Path:
    """The tools that tests call, over our command line."""
    modules = {"kafka-topics.sh": "conformance.kafka_topics", "kafka-acls.sh": "conformance.kafka_acls"}
    return _scripts(folder, {name: [sys.executable, "-m", module] for name, module in modules.items()})


def _scripts(folder: Path, commands: dict[str, Sequence[str]]) -> Path:
    binaries = folder / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    for name, command in commands.items():
        script = binaries / name
        script.write_text(
            f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(REPOSITORY))} exec {shlex.join(command)} "$@"\n'
        )
        script.chmod(0o755)
    return folder
