"""The programs of the guide from SQS: the new one on a broker, the old one and the bridge with moto.

moto is no dependency: `PENSTOCK_MOTO_PYTHON` names an interpreter that has moto, boto3 and confluent-kafka.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.testing import QueueCluster
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic
from tests.docs.walkthrough import Shell, blocks

PAGE = "docs/migrating-from-sqs.md"
DRIVER = Path(__file__).with_name("sqs_driver.py")
WAIT_S = 120


def interpreter() -> str:
    """An interpreter that has moto; skips the test without one."""
    named = os.environ.get("PENSTOCK_MOTO_PYTHON")
    if named is None and not (find_spec("moto") and find_spec("boto3")):
        pytest.skip("no moto: PENSTOCK_MOTO_PYTHON names an interpreter with moto, boto3 and confluent-kafka")
    return named or sys.executable


def test_the_new_program(
    penstock_queues: QueueCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(monkeypatch, capfd)
    shell.use(penstock_queues.bootstrap)
    with RawClient(penstock_queues.bootstrap) as client:
        create_topic(client, "images")
    _, after, _ = blocks(PAGE, "python")
    assert shell.run(after) == "['resize 1', 'resize 2']\n"


@pytest.mark.process
def test_the_bridge_loses_nothing_when_it_is_killed(penstock_queues: QueueCluster) -> None:
    python = interpreter()
    before, _, bridge = (block.code for block in blocks(PAGE, "python"))
    with RawClient(penstock_queues.bootstrap) as client:
        create_topic(client, "images")
    done = subprocess.run(
        [python, str(DRIVER), penstock_queues.bootstrap],
        input=json.dumps({"before": before, "bridge": bridge}),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["worked"] == ["a", "b"] and result["killed"]
    copies = read(penstock_queues.bootstrap, 20 + result["copied"])
    # Thirteen of the first twenty were deleted before the kill; the others are copied again.
    assert result["copied"] == 25 - 13
    assert len(copies) == 20 + 12
    assert len({id_ for id_, _ in copies}) == 25
    assert sorted({body for _, body in copies}) == sorted(str(number) for number in range(25))


def read(bootstrap: str, count: int) -> list[tuple[bytes, str]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count", "log_level": 0})
    consumer.assign([TopicPartition("images", 0, 0)])
    messages = [consumer.poll(WAIT_S) for _ in range(count)]
    consumer.close()
    return [(dict(each.headers())["sqs-message-id"], each.value().decode()) for each in messages]
