"""Load through rstream, the Python client of RabbitMQ's streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

from rstream import (
    ConfirmationStatus,
    Consumer,
    ConsumerOffsetSpecification,
    MessageContext,
    OffsetType,
    Producer,
    RawMessage,
)

from bench.compare.clients.protocol import BATCH, Arrivals, LoadClient, serve

_CALL_S = 30.0
_PENDING = 5000
"""Messages without a confirmation."""
_SUBSCRIBER = "reader"


class StreamLoad(LoadClient):
    """One stream. There is no work queue: a stream has readers with positions."""

    async def open(self) -> None:
        host, _, port = self.address.split(",")[0].partition(":")
        place = {"host": host, "port": int(port), "username": "guest", "password": "guest"}
        self._producer = Producer(**place)
        self._consumer = Consumer(**place)
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.close()
        await self._consumer.close()

    async def create(self) -> None:
        # The number of replicas is that of nodes.
        await self._producer.create_stream(self.target)

    async def remove(self) -> None:
        await self._producer.delete_stream(self.target)

    async def send_batched(self, payloads: Iterator[bytes], acked: Callable[[bytes], None] | None) -> None:
        pending: dict[int, bytes] = {}
        changed = asyncio.Event()
        failures: list[int] = []

        async def confirm(status: ConfirmationStatus) -> None:
            payload = pending.pop(status.message_id, b"")
            changed.set()
            if not status.is_confirmed:
                failures.append(status.response_code)
            elif acked is not None:
                acked(payload)

        number = 0
        while batch := list(islice(payloads, BATCH)):
            messages = []
            for payload in batch:
                number += 1
                pending[number] = payload
                messages.append(RawMessage(payload, publishing_id=number))
            await self._producer.send_batch(self.target, messages, on_publish_confirm=confirm)
            await self._until(pending, _PENDING, changed)
        await self._until(pending, 0, changed)
        if failures:
            raise RuntimeError(f"{len(failures)} messages were not confirmed: code {failures[0]}")

    @staticmethod
    async def _until(pending: dict[int, bytes], most: int, changed: asyncio.Event) -> None:
        while len(pending) > most:
            changed.clear()
            await asyncio.wait_for(changed.wait(), _CALL_S)

    async def send_one(self, payload: bytes) -> None:
        await self._producer.send_wait(self.target, RawMessage(payload))

    async def send_soon(self, payload: bytes) -> None:
        await self._producer.send_batch(self.target, [RawMessage(payload)])

    async def read(self) -> AsyncIterator[list[bytes]]:
        async for arrived in self._subscribed():
            yield [payload for payload, _ in arrived]

    async def read_one(self) -> AsyncIterator[list[bytes]]:
        async for arrived in self._subscribed():
            if not arrived:
                yield []
            for payload, offset in arrived:
                await self._consumer.store_offset(self.target, _SUBSCRIBER, offset)
                yield [payload]

    async def _subscribed(self) -> AsyncIterator[list[tuple[bytes, int]]]:
        """Messages with their offsets, as many as have arrived."""
        arrived = Arrivals[tuple[bytes, int]]()

        def take(message: Any, context: MessageContext) -> None:
            arrived.add((message, context.offset))

        yield []
        first = ConsumerOffsetSpecification(OffsetType.FIRST, None)
        await self._consumer.subscribe(
            self.target, take, offset_specification=first, initial_credit=50, subscriber_name=_SUBSCRIBER
        )
        async for batch in arrived.batches():
            yield batch


if __name__ == "__main__":
    serve(StreamLoad)
