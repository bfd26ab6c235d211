"""The scenarios with boto3, against an emulator of SQS, or of SNS with queues of SQS as subscribers.

A child process in the environment of `lab.bridge_clients`, which imports nothing else of this repository.
The parent sends one scenario per line, as in `clients.protocol`:

    > {"do": "redelivery", "address": "127.0.0.1:9324", "options": {"service": "sqs"}}
    < {"observed": true}
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

HIDDEN_S = 2
"""Visibility timeouts and delays."""
PATIENCE_S = 15.0
"""A message that has not come after so long does not come."""
QUIET_S = 1.0
"""How long a queue is watched that should have no message."""
_LONG = 60
_POLL_S = 0.05

_Message: TypeAlias = dict[str, Any]


class Aws:
    """Queues of one emulator. With `via_sns`, messages take the way over a topic to which they subscribe."""

    def __init__(self, address: str, via_sns: bool) -> None:
        options = {
            "endpoint_url": f"http://{address}",
            "region_name": "eu-central-1",
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
        }
        library = import_module("boto3")
        self.sqs = library.client("sqs", **options)
        self._sns = library.client("sns", **options)
        self._via_sns = via_sns
        self._topics: dict[str, str] = {}

    def queue(self, name: str, fifo: bool = False, **attributes: str) -> Queue:
        """A new queue, subscribed to a topic of its own with SNS."""
        queue = self.plain_queue(name, fifo, **attributes)
        if self._via_sns:
            self._topics[queue.url] = self.topic(name, fifo)
            self.subscribe(self._topics[queue.url], queue)
        return queue

    def plain_queue(self, name: str, fifo: bool = False, **attributes: str) -> Queue:
        kind = {"FifoQueue": "true"} if fifo else {}
        visible = {"VisibilityTimeout": str(HIDDEN_S)}
        found = self.sqs.create_queue(
            QueueName=_named(name, fifo), Attributes={**visible, **kind, **attributes}
        )
        return Queue(self, found["QueueUrl"])

    def topic(self, name: str, fifo: bool = False) -> str:
        attributes = {"FifoTopic": "true"} if fifo else {}
        return str(self._sns.create_topic(Name=_named(name, fifo), Attributes=attributes)["TopicArn"])

    def subscribe(self, topic: str, queue: Queue, **attributes: str) -> None:
        attributes = {"RawMessageDelivery": "true", **attributes}
        self._sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue.arn, Attributes=attributes)

    def publish(self, topic: str, body: str, kind: str = "", **more: Any) -> None:
        if kind:
            more["MessageAttributes"] = {"kind": {"DataType": "String", "StringValue": kind}}
        self._sns.publish(TopicArn=topic, Message=body, **more)

    def send(self, queue: Queue, body: str, **more: Any) -> None:
        if self._via_sns:
            self.publish(self._topics[queue.url], body, **more)
        else:
            self.sqs.send_message(QueueUrl=queue.url, MessageBody=body, **more)


def _named(name: str, fifo: bool) -> str:
    return f"{name}.fifo" if fifo else name


class Queue:
    """One queue. It is polled in short intervals, because a long poll has whole seconds."""

    def __init__(self, aws: Aws, url: str) -> None:
        self._aws = aws
        self.url = url

    @property
    def arn(self) -> str:
        found = self._aws.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        return str(found["Attributes"]["QueueArn"])

    def send(self, body: str, **more: Any) -> None:
        self._aws.send(self, body, **more)

    def receive(self, patience_s: float = PATIENCE_S) -> _Message | None:
        """One message, or None if none comes."""
        deadline = time.monotonic() + patience_s
        while True:
            answer = self._aws.sqs.receive_message(
                QueueUrl=self.url, MaxNumberOfMessages=1, AttributeNames=["All"], WaitTimeSeconds=0
            )
            if messages := answer.get("Messages"):
                found: _Message = messages[0]
                return found
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_S)

    def take(self) -> _Message:
        """A message that must come: a scenario cannot begin without it."""
        message = self.receive()
        if message is None:
            raise RuntimeError(f"no message came in {PATIENCE_S:g} s")
        return message

    def hide(self, message: _Message, seconds: int) -> None:
        self._aws.sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def delete(self, message: _Message) -> None:
        self._aws.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def drain(self, count: int) -> list[str]:
        """The bodies of up to `count` messages, each deleted; fewer if no more come."""
        bodies: list[str] = []
        while len(bodies) < count and (message := self.receive()) is not None:
            self.delete(message)
            bodies.append(message["Body"])
        return bodies


def _comes_after(queue: Queue, began: float, seconds: float) -> bool:
    """Returns true if the next message comes, and not before so many seconds since `began`."""
    return queue.receive() is not None and time.monotonic() - began >= seconds


def _redelivery(aws: Aws) -> bool:
    queue = aws.queue("redelivery")
    queue.send("1")
    began = time.monotonic()
    queue.take()
    return _comes_after(queue, began, HIDDEN_S)


def _extension(aws: Aws) -> bool:
    queue = aws.queue("extension")
    queue.send("1")
    message = queue.take()
    time.sleep(HIDDEN_S / 2)
    extended = time.monotonic()
    queue.hide(message, HIDDEN_S)
    return _comes_after(queue, extended, HIDDEN_S)


def _return(aws: Aws) -> bool:
    queue = aws.queue("return", VisibilityTimeout=str(_LONG))
    queue.send("1")
    queue.hide(queue.take(), 0)
    return queue.receive() is not None


def _count(aws: Aws) -> bool:
    queue = aws.queue("count")
    queue.send("1")
    counts = []
    for _ in range(3):
        message = queue.take()
        counts.append(message.get("Attributes", {}).get("ApproximateReceiveCount"))
        queue.hide(message, 0)
    return counts == ["1", "2", "3"]


def _dead_letter(aws: Aws) -> bool:
    letters = aws.plain_queue("dead-letter-letters")
    policy = json.dumps({"deadLetterTargetArn": letters.arn, "maxReceiveCount": "2"})
    queue = aws.queue("dead-letter", RedrivePolicy=policy)
    queue.send("1")
    for _ in range(2):
        queue.hide(queue.take(), 0)
    # The next attempt to receive the message is what moves it.
    comes_no_more = queue.receive(QUIET_S) is None
    return comes_no_more and letters.drain(1) == ["1"]


def _delayed_queue(aws: Aws) -> bool:
    queue = aws.queue("delayed-queue", DelaySeconds=str(HIDDEN_S))
    began = time.monotonic()
    queue.send("1")
    return _comes_after(queue, began, HIDDEN_S)


def _delayed_message(aws: Aws) -> bool:
    queue = aws.queue("delayed-message")
    began = time.monotonic()
    queue.send("late", DelaySeconds=HIDDEN_S)
    queue.send("soon")
    return queue.drain(2) == ["soon", "late"] and time.monotonic() - began >= HIDDEN_S


def _order(aws: Aws) -> bool:
    queue = aws.queue("order", fifo=True)
    sent = [f"{group}{number}" for number in range(4) for group in "ab"]
    for body in sent:
        queue.send(body, MessageGroupId=body[0], MessageDeduplicationId=body)
    found = queue.drain(len(sent))
    return all([b for b in found if b[0] == group] == [b for b in sent if b[0] == group] for group in "ab")


def _held_back(aws: Aws) -> bool:
    queue = aws.queue("held-back", fifo=True, VisibilityTimeout=str(_LONG))
    for body in ("a1", "a2", "b1"):
        queue.send(body, MessageGroupId=body[0], MessageDeduplicationId=body)
    first, other = queue.take(), queue.receive()
    if first["Body"] != "a1" or other is None or other["Body"] != "b1":
        return False
    is_held = queue.receive(QUIET_S) is None
    queue.delete(first)
    return is_held and queue.drain(1) == ["a2"]


def _de_duplication(aws: Aws) -> bool:
    queue = aws.queue("de-duplication", fifo=True)
    for body, number in (("1", "x"), ("1", "x"), ("last", "y")):
        queue.send(body, MessageGroupId="a", MessageDeduplicationId=number)
    return queue.drain(2) == ["1", "last"]


def _fan_out(aws: Aws) -> bool:
    topic, queues = aws.topic("fan-out"), [aws.plain_queue(f"fan-out-{name}") for name in "ab"]
    for queue in queues:
        aws.subscribe(topic, queue)
    for body in "123":
        aws.publish(topic, body)
    return all(sorted(queue.drain(3)) == ["1", "2", "3"] for queue in queues)


def _filter(aws: Aws) -> bool:
    topic, queue = aws.topic("filter"), aws.plain_queue("filter")
    aws.subscribe(topic, queue, FilterPolicy=json.dumps({"kind": ["wanted"]}))
    aws.publish(topic, "1", "other")
    aws.publish(topic, "2", "wanted")
    return queue.drain(1) == ["2"] and queue.receive(QUIET_S) is None


def _late_subscriber(aws: Aws) -> bool:
    topic, queue = aws.topic("late-subscriber"), aws.plain_queue("late-subscriber")
    aws.publish(topic, "before")
    aws.subscribe(topic, queue)
    aws.publish(topic, "after")
    found = queue.drain(1)
    rest = queue.receive(QUIET_S)
    return "before" in (found if rest is None else [*found, rest["Body"]])


SCENARIOS: Mapping[str, Callable[[Aws], bool]] = {
    "redelivery": _redelivery,
    "extension": _extension,
    "return": _return,
    "count": _count,
    "dead-letter": _dead_letter,
    "delayed-queue": _delayed_queue,
    "delayed-message": _delayed_message,
    "order": _order,
    "held-back": _held_back,
    "de-duplication": _de_duplication,
    "fan-out": _fan_out,
    "filter": _filter,
    "late-subscriber": _late_subscriber,
}


def answer(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run the scenario of a job, or tell the version of the client."""
    if job["do"] == "version":
        return {"version": import_module("boto3").__version__}
    aws = Aws(job["address"], via_sns=job["options"]["service"] == "sns")
    return {"observed": SCENARIOS[job["do"]](aws)}


def main() -> None:
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - the parent records the failure
            found = {"failed": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
