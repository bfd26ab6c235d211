"""The folder that tests know as `KAFKA_PATH`: scripts under the names of Kafka's command-line tools.

Against Apache Kafka they are its own tools; against Penstock they are thin translations to our own.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.apache_kafka import tool
from penstock.security.client_names import java_names

REPOSITORY = Path(__file__).resolve().parent.parent
KAFKA_CLASSES = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}


def kafka_tools(folder: Path) -> Path:
    """Kafka's own tools, from its jars."""
    commands = {name: tool(main_class) for name, main_class in KAFKA_CLASSES.items()}
    return _scripts(folder, commands, '${KAFKA_COMMAND_CONFIG:+--command-config "$KAFKA_COMMAND_CONFIG"}')


def penstock_tools(folder: Path) -> Path:
    """The tools that tests call, over our command line."""
    modules = {"kafka-topics.sh": "conformance.kafka_topics", "kafka-acls.sh": "conformance.kafka_acls"}
    return _scripts(folder, {name: [sys.executable, "-m", module] for name, module in modules.items()})


def tool_environment(folder: Path, client: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the scripts connect with `client`, which are settings of librdkafka."""
    if "sasl.username" not in client:
        return {}
    settings = java_names({name: value for name, value in client.items() if not name.startswith("sasl.user")})
    login = f'username="{client["sasl.username"]}" password="{client["sasl.password"]}"'
    settings |= {
        "security.protocol": client["security.protocol"].upper(),
        "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {login};",
        "ssl.truststore.type": "PEM",
    }
    path = folder / "client.properties"
    path.touch(0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return {"PENSTOCK_COMMAND_CONFIG": str(path), "KAFKA_COMMAND_CONFIG": str(path)}


def _scripts(folder: Path, commands: Mapping[str, Sequence[str]], security: str = "") -> Path:
    binaries = folder / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    for name, command in commands.items():
        script = binaries / name
        path = shlex.quote(str(REPOSITORY))
        script.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.join(command)} "$@" {security}\n')
        script.chmod(0o755)
    return folder
