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
from typing import Any

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


class FakeSqs:
    """Returns the messages of one poll after the other, and remembers which ones were deleted."""

    def __init__(self, *polls: list[str]) -> None:
        self._polls = list(polls)
        self.deleted: list[str] = []

    def receive_message(self, **_: object) -> dict[str, Any]:
        bodies = self._polls.pop(0)
        return {"Messages": [{"Body": each, "MessageId": each, "ReceiptHandle": each} for each in bodies]}

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> None:
        self.deleted.append(ReceiptHandle)


def bridge_from(sqs: FakeSqs) -> Any:
    names: dict[str, Any] = {"sqs": sqs}
    exec(blocks(PAGE, "python")[-1].code, names)
    return names["bridge"]


def test_the_bridge_deletes_no_message_that_the_topic_has_refused(penstock_queues: QueueCluster) -> None:
    with RawClient(penstock_queues.bootstrap) as client:
        create_topic(client, "images", configs={"max.message.bytes": "1"})
    sqs = FakeSqs(["a", "b"], [], [])
    with pytest.raises(RuntimeError, match=r"has not acknowledged all messages: .*MSG_SIZE_TOO_LARGE"):
        bridge_from(sqs)("url", penstock_queues.bootstrap, "images", idle_polls=2)
    assert sqs.deleted == []


def test_the_bridge_ends_after_empty_polls_in_a_row(penstock_queues: QueueCluster) -> None:
    with RawClient(penstock_queues.bootstrap) as client:
        create_topic(client, "images")
    sqs = FakeSqs([], ["a"], [], ["b"], [], [])
    assert bridge_from(sqs)("url", penstock_queues.bootstrap, "images", idle_polls=2) == 2
    assert sqs.deleted == ["a", "b"]


def read(bootstrap: str, count: int) -> list[tuple[bytes, str]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count", "log_level": 0})
    consumer.assign([TopicPartition("images", 0, 0)])
    messages = [consumer.poll(WAIT_S) for _ in range(count)]
    consumer.close()
    return [(dict(each.headers())["sqs-message-id"], each.value().decode()) for each in messages]
