"""Load through aio-pika, the asyncio client of RabbitMQ, on quorum queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aio_pika

from bench.compare.clients.protocol import BATCH, WORK_BATCH, LoadClient, serve

_CALL_S = 30.0
_POLL_S = 0.2
_PENDING = 2000
"""Messages without a publisher confirm."""
_PREFETCH = 1000


class QuorumQueueLoad(LoadClient):
    """A durable quorum queue, persistent messages, publisher confirms."""

    async def open(self) -> None:
        host = self.address.split(",")[0]
        self._connection = await aio_pika.connect(f"amqp://guest:guest@{host}/", timeout=_CALL_S)
        self._channel = await self._connection.channel(publisher_confirms=True)
        self._unconfirmed: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        await self._connection.close()

    async def create(self) -> None:
        arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": self.replicas}
        await self._channel.declare_queue(self.target, durable=True, arguments=arguments)

    async def remove(self) -> None:
        await self._channel.queue_delete(self.target)

    async def _publish(self, payload: bytes) -> None:
        message = aio_pika.Message(payload, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(message, routing_key=self.target)

    async def send_batched(self, payloads: Iterator[bytes], acked: Callable[[bytes], None] | None) -> None:
        free = asyncio.Semaphore(_PENDING)
        pending: set[asyncio.Task[None]] = set()
        failures: list[BaseException] = []

        async def publish(payload: bytes) -> None:
            try:
                await self._publish(payload)
                if acked is not None:
                    acked(payload)
            except aio_pika.exceptions.CONNECTION_EXCEPTIONS as error:
                failures.append(error)
            finally:
                free.release()

        for payload in payloads:
            await free.acquire()
            if failures:
                break
            task = asyncio.create_task(publish(payload))
            pending.add(task)
            task.add_done_callback(pending.discard)
        if pending:
            await asyncio.wait(pending, timeout=1.0 if acked else _CALL_S)
        if failures or pending:
            raise failures[0] if failures else TimeoutError(f"{len(pending)} messages were not confirmed")

    async def send_one(self, payload: bytes) -> None:
        await self._publish(payload)

    async def send_soon(self, payload: bytes) -> None:
        task = asyncio.create_task(self._publish(payload))
        self._unconfirmed.add(task)
        task.add_done_callback(self._unconfirmed.discard)
        await asyncio.sleep(0)

    async def read(self) -> AsyncIterator[list[bytes]]:
        async for messages in self._delivered(_PREFETCH, True, BATCH):
            yield [message.body for message in messages]

    async def read_one(self) -> AsyncIterator[list[bytes]]:
        async for messages in self._delivered(1, False, 1):
            for message in messages:
                await message.ack()
            yield [message.body for message in messages]

    async def work(self) -> AsyncIterator[list[bytes]]:
        async for messages in self._delivered(WORK_BATCH, False, WORK_BATCH):
            for message in messages:
                await message.ack()
            yield [message.body for message in messages]

    async def _delivered(self, prefetch: int, no_ack: bool, most: int) -> AsyncIterator[list[Any]]:
        """Deliveries of one consumer, as many as have arrived."""
        await self._channel.set_qos(prefetch_count=prefetch)
        queue = await self._channel.get_queue(self.target)
        arrived: asyncio.Queue[Any] = asyncio.Queue()

        async def take(message: Any) -> None:
            arrived.put_nowait(message)

        yield []
        await queue.consume(take, no_ack=no_ack)
        while True:
            try:
                messages = [await asyncio.wait_for(arrived.get(), _POLL_S)]
            except TimeoutError:
                yield []
                continue
            while not arrived.empty() and len(messages) < most:
                messages.append(arrived.get_nowait())
            yield messages


if __name__ == "__main__":
    serve(QuorumQueueLoad)
