"""What the test of kills needs of each system: publishing that survives a kill, and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Protocol

from lab.foreign import ForeignServer

__all__ = ["Killable", "NatsKillable", "RabbitKillable", "SqsKillable"]

_AT_A_TIME = 200
_PAUSE_S = 0.1


class Killable(Protocol):
    """A system whose server may be killed. `publish` returns when the server has accepted all numbers."""

    server: ForeignServer
    is_durable: bool
    #: true if the server accepts clients before its queues are there again
    restores_late: bool
    #: the part of the messages that it can take: an emulator is slow
    share: float

    def prepare(self) -> None: ...

    def publish(self, numbers: Iterable[int]) -> None: ...

    def arguments(self, topic: str) -> list[str]: ...

    def restored(self) -> bool:
        """Returns true if the restarted server has its queues again."""
        ...

    def reverse_arguments(self, topic: str) -> list[str]: ...

    def returned(self) -> list[bytes]:
        """Take all messages that came from the topic."""
        ...


def batches(numbers: Iterable[int]) -> list[list[int]]:
    everything = list(numbers)
    return [everything[at : at + _AT_A_TIME] for at in range(0, len(everything), _AT_A_TIME)]


async def _until_accepted(
    numbers: Sequence[int], send: Callable[[Sequence[int]], Any], errors: tuple[type[BaseException], ...]
) -> None:
    """Send numbers until the server has accepted them; it may get some of them twice, with the same id."""
    while True:
        try:
            await send(numbers)
            return
        except errors:
            await asyncio.sleep(_PAUSE_S)


class NatsKillable:
    is_durable = True
    restores_late = False
    share = 1.0

    def __init__(self, server: ForeignServer) -> None:
        self.server = server

    @property
    def url(self) -> str:
        return f"nats://{self.server.bootstrap}"

    def arguments(self, topic: str) -> list[str]:
        return ["bridge", "nats", "KILLS", topic, "--server", self.url]

    def restored(self) -> bool:
        return True

    def reverse_arguments(self, topic: str) -> list[str]:
        return [*self.arguments(topic), "--reverse", "--subject", "kills.back"]

    def prepare(self) -> None:
        async def work(context: Any) -> None:
            # Longer than any test, so that duplicates of `--reverse` are discarded.
            await context.add_stream(name="KILLS", subjects=["kills.*"], duplicate_window=3600)

        asyncio.run(self._with_context(work))

    def returned(self) -> list[bytes]:
        found: list[bytes] = []
        subject = "kills.back"

        async def work(context: Any) -> None:
            info = await context.stream_info("KILLS", subjects_filter=subject)
            count = (info.state.subjects or {}).get(subject, 0)
            subscription = await context.pull_subscribe(subject, durable="counting", stream="KILLS")
            while len(found) < count:
                for message in await subscription.fetch(500, timeout=10):
                    found.append(message.data)
                    await message.ack()

        asyncio.run(self._with_context(work))
        return found

    def publish(self, numbers: Iterable[int]) -> None:
        errors = (TimeoutError, OSError, import_module("nats").errors.Error)

        async def work(context: Any) -> None:
            async def send(part: Sequence[int]) -> None:
                await asyncio.gather(
                    *(
                        context.publish("kills.new", b"%d" % each, headers={"Nats-Msg-Id": str(each)})
                        for each in part
                    )
                )

            for part in batches(numbers):
                await _until_accepted(part, send, errors)

        asyncio.run(self._with_context(work))

    async def _with_context(self, work: Callable[[Any], Any]) -> None:
        client = await import_module("nats").connect(self.url, max_reconnect_attempts=-1)
        try:
            await work(client.jetstream())
        finally:
            await client.close()


class RabbitKillable:
    is_durable = True
    restores_late = False
    share = 1.0

    def __init__(self, server: ForeignServer) -> None:
        self.server = server

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.server.bootstrap}/"

    def arguments(self, topic: str) -> list[str]:
        return ["bridge", "amqp", "kills", topic, "--url", self.url]

    def restored(self) -> bool:
        return True

    def reverse_arguments(self, topic: str) -> list[str]:
        return [*self.arguments(topic), "--reverse"]

    def returned(self) -> list[bytes]:
        found: list[bytes] = []

        async def work() -> None:
            async with self._channel() as channel:
                queue = await channel.declare_queue("kills", passive=True)
                while (message := await queue.get(no_ack=True, fail=False)) is not None:
                    found.append(message.body)

        asyncio.run(work())
        return found

    def prepare(self) -> None:
        async def work() -> None:
            async with self._channel() as channel:
                quorum = {"x-queue-type": "quorum"}
                await channel.declare_queue("kills", durable=True, arguments=quorum)

        asyncio.run(work())

    def publish(self, numbers: Iterable[int]) -> None:
        library = import_module("aio_pika")
        errors = (*import_module("aio_pika.exceptions").CONNECTION_EXCEPTIONS, TimeoutError)

        async def send(part: Sequence[int]) -> None:
            async with self._channel() as channel:
                messages = [
                    library.Message(b"%d" % each, message_id=f"m-{each}", delivery_mode=2) for each in part
                ]
                await asyncio.gather(
                    *(channel.default_exchange.publish(message, "kills") for message in messages)
                )

        async def work() -> None:
            for part in batches(numbers):
                await _until_accepted(part, send, errors)

        asyncio.run(work())

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[Any]:
        async with await import_module("aio_pika").connect(self.url) as connection:
            yield await connection.channel()


class SqsKillable:
    """moto keeps its queues in memory, so it is not killed. ElasticMQ can be durable."""

    share = 0.1
    restores_late = True

    def __init__(self, server: ForeignServer, *, is_durable: bool) -> None:
        self.server = server
        self.is_durable = is_durable
        self._client: Any = None
        self._url = ""

    def arguments(self, topic: str) -> list[str]:
        return ["bridge", "sqs", "kills", topic, "--endpoint-url", f"http://{self.server.bootstrap}"]

    def restored(self) -> bool:
        refused = import_module("botocore.exceptions").ClientError
        try:
            self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        except refused:
            return False
        return True

    def reverse_arguments(self, topic: str) -> list[str]:
        return [*self.arguments(topic), "--reverse"]

    def returned(self) -> list[bytes]:
        found: list[bytes] = []
        waits = {"QueueUrl": self._url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1}
        while messages := self._client.receive_message(**waits).get("Messages"):
            for message in messages:
                found.append(message["Body"].encode())
                self._client.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def prepare(self) -> None:
        address = f"http://{self.server.bootstrap}"
        self._client = import_module("boto3").client("sqs", endpoint_url=address)
        attributes = {"VisibilityTimeout": "2"}
        self._url = self._client.create_queue(QueueName="kills", Attributes=attributes)["QueueUrl"]

    def publish(self, numbers: Iterable[int]) -> None:
        everything = list(numbers)
        for at in range(0, len(everything), 10):
            entries = [{"Id": str(each), "MessageBody": str(each)} for each in everything[at : at + 10]]
            assert not self._client.send_message_batch(QueueUrl=self._url, Entries=entries).get("Failed")
