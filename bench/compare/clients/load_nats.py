"""Load through nats-py, the client of the NATS project, with JetStream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import nats
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from bench.compare.clients.protocol import POLL_S, WORK_BATCH, Arrivals, LoadClient, serve

_CALL_S = 30.0
_PENDING = 4000
"""Messages without an acknowledgement; the library's own default."""


class NatsLoad(LoadClient):
    """A stream in files with one subject. A worker is a durable pull consumer that acknowledges."""

    async def open(self) -> None:
        servers = [f"nats://{each}" for each in self.address.split(",")]
        self._connection = await nats.connect(
            servers=servers, max_reconnect_attempts=3, reconnect_time_wait=0.2
        )
        self._stream = self._connection.jetstream(timeout=_CALL_S, publish_async_max_pending=_PENDING)

    async def close(self) -> None:
        await self._connection.close()

    async def create(self) -> None:
        is_queue = bool(self.options.get("is_queue"))
        wanted = StreamConfig(
            name=self.target,
            subjects=[self.target],
            storage=StorageType.FILE,
            num_replicas=self.replicas,
            retention=RetentionPolicy.WORK_QUEUE if is_queue else RetentionPolicy.LIMITS,
        )
        for attempt in range(100):
            try:
                await self._stream.add_stream(wanted)
                return
            except Exception:
                # A cluster that has just started may not have a leader of its metadata yet.
                if attempt == 99:
                    raise
                await asyncio.sleep(0.2)

    async def remove(self) -> None:
        await self._stream.delete_stream(self.target)

    async def send_batched(self, payloads: Iterator[bytes], acked: Callable[[bytes], None] | None) -> None:
        failures: list[BaseException] = []

        def note(future: asyncio.Future[Any], payload: bytes) -> None:
            if future.cancelled() or future.exception() is not None:
                failures.append(future.exception() or asyncio.CancelledError())
            elif acked is not None:
                acked(payload)

        def check(future: asyncio.Future[Any]) -> None:
            note(future, b"")

        for payload in payloads:
            future = await self._stream.publish_async(self.target, payload)
            if acked is None:
                future.add_done_callback(check)
            else:
                future.add_done_callback(lambda done, sent=payload: note(done, sent))
            if failures:
                break
        await asyncio.wait_for(self._stream.publish_async_completed(), 1.0 if acked else _CALL_S)
        if failures:
            raise failures[0]

    async def send_one(self, payload: bytes) -> None:
        await self._stream.publish(self.target, payload)

    async def send_soon(self, payload: bytes) -> None:
        await self._stream.publish_async(self.target, payload)

    async def read(self) -> AsyncIterator[list[bytes]]:
        """An ordered consumer: the server pushes, with flow control."""
        arrived = Arrivals[bytes]()

        async def take(message: Any) -> None:
            arrived.add(message.data)

        yield []
        await self._stream.subscribe(self.target, stream=self.target, ordered_consumer=True, cb=take)
        async for batch in arrived.batches():
            yield batch

    async def read_one(self) -> AsyncIterator[list[bytes]]:
        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
        async for messages in self._fetched("reader", config, 1):
            for message in messages:
                await message.ack_sync(timeout=_CALL_S)
            yield [message.data for message in messages]

    async def work(self) -> AsyncIterator[list[bytes]]:
        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
        async for messages in self._fetched("workers", config, WORK_BATCH):
            # The last acknowledgement is answered: then the server has all of the batch.
            for message in messages[:-1]:
                await message.ack()
            for message in messages[-1:]:
                await message.ack_sync(timeout=_CALL_S)
            yield [message.data for message in messages]

    async def _fetched(
        self, durable: str | None, config: ConsumerConfig, batch: int
    ) -> AsyncIterator[list[Any]]:
        subscription = await self._stream.pull_subscribe(
            self.target, durable=durable, stream=self.target, config=config
        )
        yield []
        while True:
            try:
                messages = await subscription.fetch(batch, timeout=POLL_S)
            except (TimeoutError, NatsTimeout):
                messages = []
            yield messages


if __name__ == "__main__":
    serve(NatsLoad)
