"""Queues of SQS: with a client in memory, and with ElasticMQ and moto by the command."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from penstock import Producer
from penstock.bridge.copying import Copier, CopySettings
from penstock.bridge.errors import BridgeError, WriteFailed
from penstock.bridge.mapping import KeyRule
from penstock.bridge.message import Bridged
from penstock.bridge.sqs_queues import SqsQueue, SqsSource, SqsTarget
from penstock.testing import broker
from tests.bridge.fakes import FakeSource, FakeTarget, message
from tests.broker.raw import RawClient
from tests.broker.requests import create_topic
from tests.cli.running import run_here
from tests.other_systems import require_client

LIMIT = 256 << 10
AT_END = CopySettings(exit_at_end=True, poll_s=0.01, backoff_s=0.01)


class FakeClient:
    """The calls of boto3 that the bridge makes, on a queue in memory without visibility timeouts."""

    def __init__(self, *bodies: str) -> None:
        self._lock = threading.Lock()
        self.waiting = [{"Body": each, "MessageId": each, "ReceiptHandle": each} for each in bodies]
        self.in_flight: dict[str, dict[str, str]] = {}
        self.sent: list[dict[str, Any]] = []
        self.fails_to_send: list[dict[str, Any]] = []
        #: the sizes of requests
        self.requests: list[int] = []

    def close(self) -> None: ...

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: list[str]) -> dict[str, Any]:
        left = len(self.waiting) + len(self.in_flight)
        values = dict.fromkeys(AttributeNames, str(left)) | {"VisibilityTimeout": "30"}
        return {"Attributes": values}

    def receive_message(self, *, MaxNumberOfMessages: int, **_: object) -> dict[str, Any]:
        with self._lock:
            taken, self.waiting = self.waiting[:MaxNumberOfMessages], self.waiting[MaxNumberOfMessages:]
            self.in_flight |= {each["ReceiptHandle"]: each for each in taken}
        return {"Messages": taken}

    def delete_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:
        for entry in Entries:
            del self.in_flight[entry["ReceiptHandle"]]
        return {}

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[Any]) -> dict[str, Any]:
        for entry in Entries:
            if entry["VisibilityTimeout"] == 0:
                self.waiting.append(self.in_flight.pop(entry["ReceiptHandle"]))
        return {}

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        size = sum(len(entry["MessageBody"]) for entry in Entries)
        if size > LIMIT or any("bad" in entry["MessageBody"] for entry in Entries):
            refusal = import_module("botocore.exceptions").ClientError
            answer = {"Error": {"Code": "Refused"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise refusal(answer, "SendMessageBatch")
        self.requests.append(len(Entries))
        failed, self.fails_to_send = self.fails_to_send, []
        self.sent += [entry for entry in Entries if entry["Id"] not in {each["Id"] for each in failed}]
        return {"Failed": failed}


def source_of(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> SqsSource:
    monkeypatch.setattr(SqsQueue, "client", lambda self: client)
    return SqsSource(SqsQueue("http://sqs/1/jobs"), KeyRule(natural=True))


def test_messages_are_deleted_after_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    require_client("botocore")
    client = FakeClient(*(str(number) for number in range(25)))
    target = FakeTarget()
    counts = asyncio.run(Copier(source_of(client, monkeypatch), target, AT_END).run())
    assert sorted(map(str, target.stored)) == sorted(str(number) for number in range(25))
    assert (counts.acknowledged, client.waiting, client.in_flight) == (25, [], {})


def test_a_refused_message_stays_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    require_client("botocore")
    client = FakeClient("a", "b")
    target = FakeTarget(lambda each: WriteFailed("too large", retriable=False) if each.id == "a" else None)
    with pytest.raises(BridgeError, match="refuses message a of SQS queue jobs"):
        asyncio.run(Copier(source_of(client, monkeypatch), target, AT_END).run())
    assert [each["Body"] for each in client.waiting] == ["a"]


def test_entries_that_sqs_has_not_stored_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    require_client("botocore")
    client = FakeClient()
    client.fails_to_send = [{"Id": "1", "SenderFault": False, "Code": "InternalError", "Message": "busy"}]
    monkeypatch.setattr(SqsQueue, "client", lambda self: client)
    target = SqsTarget(SqsQueue("http://sqs/1/jobs"))
    counts = asyncio.run(Copier(FakeSource(map(message, range(3))), target, AT_END).run())
    assert (counts.written, counts.retried) == (3, 1)
    assert sorted(entry["MessageBody"] for entry in client.sent) == ["0", "1", "2"]


def large(number: int, text: str = "x") -> Bridged:
    return replace(message(number), body=text.encode() * 60_000)


def test_a_request_has_no_more_bytes_than_sqs_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    require_client("botocore")
    client = FakeClient()
    monkeypatch.setattr(SqsQueue, "client", lambda self: client)
    target = SqsTarget(SqsQueue("http://sqs/1/jobs.fifo"))
    counts = asyncio.run(Copier(FakeSource(map(large, range(10))), target, AT_END).run())
    assert (counts.written, client.requests) == (10, [4, 4, 2])
    sent = [entry["MessageDeduplicationId"] for entry in client.sent]
    assert sent == [f"S:{number}" for number in range(10)]


def test_only_the_refused_message_of_a_refused_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    require_client("botocore")
    client = FakeClient()
    monkeypatch.setattr(SqsQueue, "client", lambda self: client)
    messages = [message(0), replace(message(1), body=b"bad"), message(2)]
    target = SqsTarget(SqsQueue("http://sqs/1/jobs"))
    with pytest.raises(BridgeError, match="refuses message S:1 of source"):
        asyncio.run(Copier(FakeSource(messages), target, AT_END).run())
    assert [entry["MessageBody"] for entry in client.sent] == ["0", "2"]


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    config = {"group.initial.rebalance.delay.ms": "0", "penstock.log.level": "error"}
    with broker(config=config) as running:
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP", running.bootstrap)
        with RawClient(running.bootstrap) as client:
            create_topic(client, "jobs")
            create_topic(client, "orders")
        yield running.bootstrap


def bridge(capfd: pytest.CaptureFixture[str], *arguments: str) -> dict[str, int]:
    code = run_here("bridge", "sqs", *arguments, "--exit-at-end", "--json")
    output, errors = capfd.readouterr()
    assert code == 0, errors
    found: dict[str, int] = json.loads(output)
    return found


@pytest.mark.process
def test_there_and_back(sqs_url: str, bootstrap: str, capfd: pytest.CaptureFixture[str]) -> None:
    sqs = import_module("boto3").client("sqs")
    url = sqs.create_queue(QueueName="jobs")["QueueUrl"]
    back = sqs.create_queue(QueueName="back")["QueueUrl"]
    sqs.create_queue(QueueName="returned")
    for number in range(12):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    counts = bridge(capfd, "jobs", "jobs")
    assert (counts["written"], counts["acknowledged"]) == (12, 12)
    assert bridge(capfd, url, "jobs")["received"] == 0
    # The topic has the only copies.
    assert bridge(capfd, "returned", "jobs", "--reverse")["written"] == 12

    asyncio.run(_send(bootstrap))
    assert bridge(capfd, "back", "orders", "--reverse")["written"] == 1
    (found,) = sqs.receive_message(QueueUrl=back, MessageAttributeNames=["All"])["Messages"]
    assert (found["Body"], found["MessageAttributes"]["own"]["StringValue"]) == ("/w==", "1")
    assert found["MessageAttributes"]["penstock-bridge-encoding"]["StringValue"] == "base64"
    sqs.change_message_visibility(QueueUrl=back, ReceiptHandle=found["ReceiptHandle"], VisibilityTimeout=0)
    # It came from Kafka, so it is not copied to Kafka again.
    assert bridge(capfd, "back", "orders")["skipped"] == 1


async def _send(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send("orders", b"\xff", headers={"own": "1"})


@pytest.mark.process
def test_failures_are_one_line(sqs_url: str, bootstrap: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_here("bridge", "sqs", "nowhere", "jobs") == 1
    errors = capfd.readouterr().err
    # Emulators differ in the code of this error, and not in its text.
    assert errors.count("\n") == 1 and "specified queue does not exist" in errors, errors
