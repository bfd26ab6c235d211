"""The load client of Kafka's protocol as a child process, on a broker of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.compare.child import JobFailed, LoadProcess
from bench.compare.losses import lost
from penstock.testing import broker

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadProcess]:
    log = tmp_path_factory.mktemp("load") / "client.log"
    with broker() as running:
        made = LoadProcess(Path(sys.executable), "load_kafka", running.bootstrap, {"replicas": 1}, log)
        try:
            yield made
        finally:
            made.close()


def test_messages_go_through(client: LoadProcess) -> None:
    client.call({"do": "create", "target": "t"})
    produce = {"do": "produce", "target": "t", "size": 100, "batched": True, "most": 40_000}
    sent, _ = client.timed(produce, lambda: 0.0)
    for job in (
        {"do": "consume", "batched": True},
        {"do": "consume", "batched": False, "most": 5},
        {"do": "work"},
    ):
        read, _ = client.timed({"target": "t", "most": sent["messages"], **job}, lambda: 0.0)
        assert read["messages"] >= min(5, sent["messages"]), job
        assert read["seconds"] > 0


def test_everything_acknowledged_is_there(client: LoadProcess) -> None:
    client.call({"do": "create", "target": "log"})
    client.prepare({"do": "log", "target": "log", "size": 50, "most": 3000})
    client.go()
    client.wait_for_acknowledgement()
    client.stop_job()
    sent = client.result()
    found = client.call({"do": "list", "target": "log"})
    assert lost(sent["numbers"], found["numbers"]) == 0


def test_a_job_on_a_topic_that_is_not_there_fails(client: LoadProcess) -> None:
    client.call({"do": "create", "target": "once"})
    with pytest.raises(JobFailed):
        client.call({"do": "create", "target": "once"})
