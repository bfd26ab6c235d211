"""librdkafka's producer on the event loop: its queue, its delivery reports, its first contact.

librdkafka batches, retries and talks to brokers on threads of its own, and says what became of a message when
it is polled. As long as something is on its way the event loop polls it every millisecond: callbacks then
run on the loop's own thread, many per turn. A thread that polls would fight the loop for the interpreter,
once per message.

Owned by: `Producer`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from confluent_kafka import KafkaException

from penstock.client.deliveries import Deliveries, DeliveryCallback
from penstock.client.errors import QueueFull, translated
from penstock.client.first_contact import FirstContact

__all__ = ["Sending"]

_POLL_INTERVAL = 0.001
_PURGE_TIMEOUT = 2.0
#: how long one call of flush occupies a thread, also after its caller was cancelled
_FLUSH_STEP_S = 1.0


class Sending:
    """The queue of a producer that has started. `rk` is librdkafka's producer, or `SmallBatches`."""

    def __init__(self, rk: Any, contact: FirstContact) -> None:
        self._loop = asyncio.get_running_loop()
        self.rk = rk
        self._contact = contact
        self.deliveries = Deliveries(contact)
        self._verifying: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._ticked: asyncio.Future[None] | None = None
        contact.begin(self._loop.time())

    def put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        callback: DeliveryCallback | None,
        extra: dict[str, Any],
    ) -> None:
        """Put a message into the queue; `QueueFull` if it has no room, `Refused` if librdkafka refuses it."""
        deliveries = self.deliveries
        on_delivery = deliveries.unwatched if callback is None else partial(deliveries.watched, callback)
        try:
            self.rk.produce(topic, value, key, partition, on_delivery, **extra)
        except BufferError:
            raise QueueFull from None
        except KafkaException as e:
            raise translated(e) from e
        finally:
            if self._ticking is None:
                self._ticking = self._loop.call_later(_POLL_INTERVAL, self._tick)

    async def next_tick(self) -> None:
        if self._ticking is None:  # librdkafka's queue also holds errors, which no message has brought
            self._ticking = self._loop.call_later(_POLL_INTERVAL, self._tick)
        if self._ticked is None:
            self._ticked = self._loop.create_future()
        await asyncio.shield(self._ticked)

    async def flush(self) -> None:
        """Wait until the queue is empty; `DeliveryFailed` if a message without a callback failed."""
        while not self._contact.made and len(self.rk):
            # Each turn polls, and fails messages for brokers that were never reached.
            await self.next_tick()
        while await asyncio.to_thread(self.rk.flush, _FLUSH_STEP_S):
            pass
        self.deliveries.deliver()
        failed = self.deliveries.take_failures()
        if failed is not None:
            raise failed

    async def check_contact(self) -> None:
        """Raise an error if no broker accepts the client, or has answered when the time for that is over."""
        self.rk.poll(0)  # errors of connections
        now = self._loop.time()
        if self._contact.is_overdue(now) or self._contact.is_late(now):
            error = await self._contact.verify(self.rk)
            if error is not None:
                raise error

    async def close(self) -> None:
        """Fail the messages in the queue, and end librdkafka's threads."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._verifying is not None:
            await self._verifying
        # Messages are left only if the flush was cancelled; their senders must get an error.
        self.rk.purge()
        # librdkafka's threads report what was purged in their own time.
        deadline = self._loop.time() + _PURGE_TIMEOUT
        while len(self.rk) and self._loop.time() < deadline:
            self.rk.poll(0)
            await asyncio.sleep(_POLL_INTERVAL)
        self.rk.poll(0)
        self.deliveries.deliver()
        last_reference, self.rk = [self.rk], None
        # Destroying it joins librdkafka's threads.
        await asyncio.to_thread(last_reference.clear)

    async def _verify_contact(self) -> None:
        """Fail everything in the queue if no broker answers."""
        self.deliveries.unreachable = await self._contact.verify(self.rk)
        self._verifying = None
        if self.deliveries.unreachable is not None:
            self.rk.purge()

    def _tick(self) -> None:
        """Poll librdkafka for delivery reports, again as long as messages are in flight."""
        self.rk.poll(0)
        if self._verifying is None and self._contact.is_overdue(self._loop.time()):
            self._verifying = self._loop.create_task(self._verify_contact())
        self._ticking = self._loop.call_later(_POLL_INTERVAL, self._tick) if len(self.rk) else None
        if self._ticked is not None:
            self._ticked.set_result(None)
            self._ticked = None
        self.deliveries.deliver()
