"""Kafka Connect with exactly-once source connectors: a worker that is killed copies each line once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka.admin import NewTopic

from chaos.cluster import Cluster
from lab.kafka_streams import streams_classpath
from lab.server import free_port
from tests.ecosystem.committed import create, read_committed
from tests.ecosystem.conftest import Program

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

LINES = 4000
#: The connector keeps the last lines of a file in a buffer until more lines follow.
MORE = 200
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"


def worker_properties(bootstrap: str, port: int) -> str:
    """A worker of a Connect cluster that has one worker at a time."""
    configs = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "exactly.once.source.support": "enabled",
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "offset.storage.partitions": 2,
        "status.storage.topic": "connect-status",
        "status.storage.partitions": 2,
        "listeners": f"http://127.0.0.1:{port}",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1000,
        "scheduled.rebalance.max.delay.ms": 0,
        "plugin.discovery": "service_load",
        "offset.flush.interval.ms": 500,
    }
    return "".join(f"{key}={value}\n" for key, value in configs.items())


def create_connector(port: int, source: Path) -> bool:
    """Returns false while the worker does not serve requests yet."""
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(source),
        "topic": "lines",
        "batch.size": "50",
        "exactly.once.support": "required",
        "tasks.max": "1",
    }
    request = Request(
        f"http://127.0.0.1:{port}/connectors/files/config",
        json.dumps(config).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        with urlopen(request, timeout=30) as response:
            return bool(response.status in (200, 201))
    except HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def test_every_line_is_copied_once(
    brokers: Cluster, tmp_path: Path, program: Callable[[str, list[str]], Program]
) -> None:
    bootstrap, port, source = brokers.bootstrap, free_port(), tmp_path / "source.txt"
    create(bootstrap, 3, NewTopic("lines", 1, 3))
    properties = tmp_path / "worker.properties"
    properties.write_text(worker_properties(bootstrap, port))
    lines = [f"line {number}" for number in range(LINES + MORE)]
    source.write_text("".join(f"{line}\n" for line in lines[: LINES // 2]))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = ["java", "-Xmx384m", "-XX:TieredStopAtLevel=1", LOG_LEVEL, "-cp", streams_classpath(), main]
    worker = program("connect", [*command, str(properties)])
    worker.start()
    worker.wait_until(lambda: create_connector(port, source))
    worker.wait_until(lambda: len(read_committed(bootstrap, "lines", 1)) > LINES // 8)
    worker.kill()
    with source.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines[LINES // 2 :]))
    worker.start()
    worker.wait_until(lambda: len(read_committed(bootstrap, "lines", 1)) >= LINES)
    copied = [message.value().decode() for message in read_committed(bootstrap, "lines", 1)]
    assert copied == lines[: len(copied)]
