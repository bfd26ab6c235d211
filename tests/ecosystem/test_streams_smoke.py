"""Kafka's own smoke test of Kafka Streams, from its published test jar, with both protocols.

Its client counts, sums, compares, joins and aggregates in windows, exactly once. Its driver writes 20,000
records, and verifies every result.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from lab.kafka_streams import smoke_test_classpath
from lab.penstock import penstock
from tests.ecosystem.committed import create
from tests.ecosystem.conftest import Program

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

TOPICS = (
    *("data", "echo", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw", "sws-suppressed"),
    *("dif", "cnt", "avg", "wcnt", "tagg", "fk"),
)
_PARTITIONS = 5
_PATIENCE_S = 600


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_the_driver_verifies_all_results(
    protocol: str, tmp_path: Path, program: Callable[[str, list[str]], Program]
) -> None:
    (folder := tmp_path / "broker").mkdir()
    server = penstock(folder, {})
    server.start()
    try:
        create(server.bootstrap, 1, *(NewTopic(name, _PARTITIONS, 1) for name in TOPICS))
        properties = {
            "bootstrap.servers": server.bootstrap,
            "processing.guarantee": "exactly_once_v2",
            "group.protocol": protocol,
            "state.dir": str(tmp_path / "state"),
            "replication.factor": "1",
        }
        file = tmp_path / "smoke.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        java = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", smoke_test_classpath()]
        smoke_test = [*java, "org.apache.kafka.streams.tests.StreamsSmokeTest", str(file)]
        program("client", [*smoke_test, "process"]).start()
        done = subprocess.run(
            [*smoke_test, "run"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:]
        assert {"ALL-RECORDS-DELIVERED", "SUCCESS"} <= set(done.stdout.splitlines()), done.stdout[-3000:]
    finally:
        server.stop()
