"""Queues of SQS: receiving and deleting as source, sending as target. Uses boto3, in threads."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar

from penstock.bridge.errors import BridgeError, ConnectionLost, WriteFailed, reason
from penstock.bridge.mapping import KeyRule
from penstock.bridge.message import Bridged
from penstock.bridge.ports import Done
from penstock.bridge.sqs_mapping import SQS, SqsCopy, from_sqs, to_sqs

__all__ = ["LOGGERS", "SqsQueue", "SqsSource", "SqsTarget"]

#: the client library logs to these what it tries again, and raises the rest
LOGGERS: Final = ("boto3", "botocore", "urllib3")

T = TypeVar("T")

#: entries of one request
_BATCH: Final = 10
#: bytes of one request: the limit of SQS, which is 1 MiB for AWS now, and was this one before
_BATCH_BYTES: Final = 256 << 10
#: requests at a time, if the last one has returned as many messages as it could
_RECEIVERS: Final = 4
_THROTTLED: Final = 429
_ATTRIBUTES: Final = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")


@dataclass(frozen=True, slots=True)
class SqsQueue:
    """A queue by its URL or its name. Credentials and region come from the environment, as AWS's tools do."""

    queue: str
    endpoint_url: str | None = None
    region: str | None = None

    def client(self) -> Any:
        session = import_module("boto3")
        options = {"endpoint_url": self.endpoint_url, "region_name": self.region}
        return session.client("sqs", **{name: value for name, value in options.items() if value is not None})

    @property
    def name(self) -> str:
        return self.queue.rsplit("/", 1)[-1]


async def _call(function: Callable[..., T], **arguments: Any) -> T:
    """Call boto3 in a thread. A failure that may pass is `ConnectionLost`."""
    errors = import_module("botocore.exceptions")
    try:
        return await asyncio.to_thread(function, **arguments)
    except errors.ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        if 400 <= status < 500 and status != _THROTTLED and "Throttl" not in str(error):
            raise BridgeError(f"SQS refuses the request ({reason(error)})") from error
        raise ConnectionLost(reason(error)) from error
    except (errors.EndpointConnectionError, errors.HTTPClientError, OSError) as error:
        raise ConnectionLost(f"SQS does not answer ({reason(error)})") from error
    except (errors.BotoCoreError, ValueError) as error:
        raise BridgeError(f"SQS cannot be used ({reason(error)})") from error


async def _connect(queue: SqsQueue) -> tuple[Any, str]:
    """The client, and the URL of the queue."""
    client = await _call(queue.client)
    if queue.queue.startswith(("http://", "https://")):
        return client, queue.queue
    found = await _call(client.get_queue_url, QueueName=queue.queue)
    return client, found["QueueUrl"]


class SqsSource:
    """Receives from a queue. A message is invisible to others until its visibility timeout, or deleted."""

    def __init__(self, queue: SqsQueue, rule: KeyRule, unwrap_sns: bool = False) -> None:
        self._queue = queue
        self._rule = rule
        self._unwrap_sns = unwrap_sns
        self._client: Any = None
        self._url = ""
        self._was_full = False
        self._visible_s = 0
        self.lock_s: float | None = None

    @property
    def name(self) -> str:
        return f"SQS queue {self._queue.name}"

    async def open(self) -> None:
        self._client, self._url = await _connect(self._queue)
        found = await _call(
            self._client.get_queue_attributes, QueueUrl=self._url, AttributeNames=["VisibilityTimeout"]
        )
        self._visible_s = int(found["Attributes"]["VisibilityTimeout"])
        self.lock_s = self._visible_s or None

    async def receive(self, limit: int, wait_s: float) -> list[Bridged]:
        """Long polling of SQS takes whole seconds."""
        calls = max(1, min(_RECEIVERS, limit // _BATCH)) if self._was_full else 1
        answers = await asyncio.gather(
            *(
                _call(
                    self._client.receive_message,
                    QueueUrl=self._url,
                    MaxNumberOfMessages=min(limit, _BATCH),
                    WaitTimeSeconds=math.ceil(wait_s),
                    MessageAttributeNames=["All"],
                    MessageSystemAttributeNames=["All"],
                )
                for _ in range(calls)
            )
        )
        found = [message for answer in answers for message in answer.get("Messages", ())]
        self._was_full = len(found) >= calls * _BATCH
        return [
            from_sqs(
                message,
                queue=self._queue.name,
                rule=self._rule,
                unwrap_sns=self._unwrap_sns,
                handle=message["ReceiptHandle"],
            )
            for message in found
        ]

    async def acknowledge(self, messages: Sequence[Bridged]) -> None:
        await self._each_batch(self._client.delete_message_batch, messages, {})

    async def release(self, messages: Sequence[Bridged]) -> None:
        await self._each_batch(
            self._client.change_message_visibility_batch, messages, {"VisibilityTimeout": 0}
        )

    async def extend(self, messages: Sequence[Bridged]) -> None:
        options = {"VisibilityTimeout": self._visible_s}
        await self._each_batch(self._client.change_message_visibility_batch, messages, options)

    async def _each_batch(
        self, function: Callable[..., Any], messages: Sequence[Bridged], options: dict[str, Any]
    ) -> None:
        for begin in range(0, len(messages), _BATCH):
            batch = messages[begin : begin + _BATCH]
            entries = [
                {"Id": str(number), "ReceiptHandle": message.handle, **options}
                for number, message in enumerate(batch)
            ]
            answer = await _call(function, QueueUrl=self._url, Entries=entries)
            failed = [each for each in answer.get("Failed", ()) if not each.get("SenderFault")]
            # At the sender's fault the receipt has expired: the message is delivered again.
            if failed:
                raise ConnectionLost(f"SQS has not applied {len(failed)} changes: {failed[0].get('Message')}")

    async def is_drained(self) -> bool:
        found = await _call(
            self._client.get_queue_attributes, QueueUrl=self._url, AttributeNames=list(_ATTRIBUTES)
        )
        return all(int(found["Attributes"][name]) == 0 for name in _ATTRIBUTES)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


class _Pending(NamedTuple):
    copy: SqsCopy
    done: Done


class SqsTarget:
    """Sends to a queue, up to ten messages and 256 KiB in a request.

    One request at a time keeps the order of FIFO queues.
    """

    system = SQS

    def __init__(self, queue: SqsQueue) -> None:
        self._queue = queue
        self._client: Any = None
        self._url = ""
        self._pending: asyncio.Queue[_Pending] = asyncio.Queue()
        #: the first entry of the next request, which had no room in the last one
        self._next: _Pending | None = None
        self._sending: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return f"SQS queue {self._queue.name}"

    async def open(self) -> None:
        self._client, self._url = await _connect(self._queue)
        self._sending = asyncio.create_task(self._send())

    async def write(self, message: Bridged, done: Done) -> None:
        self._pending.put_nowait(_Pending(to_sqs(message), done))

    async def _send(self) -> None:
        while True:
            batch = await self._next_batch()
            for number, failure in enumerate(await self._results([each.copy for each in batch])):
                batch[number].done(failure)

    async def _next_batch(self) -> list[_Pending]:
        """The entries of the next request, as soon as there is one."""
        first, self._next = self._next or await self._pending.get(), None
        batch, size = [first], first.copy.size
        while len(batch) < _BATCH and not self._pending.empty():
            entry = self._pending.get_nowait()
            size += entry.copy.size
            if size > _BATCH_BYTES:
                self._next = entry
                break
            batch.append(entry)
        return batch

    async def _results(self, copies: list[SqsCopy]) -> list[WriteFailed | None]:
        """Send the messages. If SQS refuses the request, send them one by one: most may be accepted."""
        try:
            failed = await self._send_batch(copies)
            return [failed.get(number) for number in range(len(copies))]
        except ConnectionLost as error:
            return [WriteFailed(str(error), retriable=True)] * len(copies)
        except BridgeError as error:
            if len(copies) == 1:
                return [WriteFailed(str(error), retriable=False)]
        return [result for each in copies for result in await self._results([each])]

    async def _send_batch(self, copies: list[SqsCopy]) -> dict[int, WriteFailed]:
        """The messages that were not stored, by their number."""
        is_fifo = self._url.endswith(".fifo")
        entries = [{"Id": str(number), **copy.entry(is_fifo)} for number, copy in enumerate(copies)]
        answer = await _call(self._client.send_message_batch, QueueUrl=self._url, Entries=entries)
        return {
            int(each["Id"]): WriteFailed(
                f"{each.get('Code')}: {each.get('Message')}", retriable=not each.get("SenderFault")
            )
            for each in answer.get("Failed", ())
        }

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        client, self._client = self._client, None
        if client is not None:
            client.close()
