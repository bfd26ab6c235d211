"""Runs a handler for the messages of a queue: concurrency, retries, dead letters, and a graceful end.

The broker counts deliveries, so attempts are counted over all members and over crashes. A message of a
failed attempt keeps its lock for the backoff, and is released then. It does not occupy one of the concurrent
handlers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TypeAlias

from penstock.client.dead_letters import dead_letter_headers
from penstock.client.errors import ClientError
from penstock.client.producer import Producer
from penstock.client.queues.message import QueueMessage
from penstock.client.retrying import RetryPolicy
from penstock.client.tracing import Tracing

__all__ = ["QueueHandler", "QueueJob", "QueueRun"]

_log = logging.getLogger("penstock.client")
QueueHandler: TypeAlias = Callable[[QueueMessage], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJob:
    """The handling of each message in a run. `dead_letters` are a producer and a topic."""

    handler: QueueHandler
    concurrency: int
    retry: RetryPolicy
    group: str
    dead_letters: tuple[Producer, str] | None
    tracing: Tracing | None
    shutdown_timeout_s: float


class QueueRun:
    """`take` returns the next message, or None when the queue stops. `freed` is called after each message."""

    def __init__(
        self, job: QueueJob, take: Callable[[], Awaitable[QueueMessage | None]], freed: Callable[[], None]
    ) -> None:
        self._job = job
        self._take = take
        self._freed = freed
        self._slots = asyncio.Semaphore(job.concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def is_handling_here(self) -> bool:
        """Returns true in a handler of this run."""
        return asyncio.current_task() in self._tasks

    def stop(self) -> None:
        """Take no more messages, and finish those that are being handled."""
        self._stopping.set()

    async def run(self) -> None:
        try:
            try:
                await self._feed()
            finally:
                self._stopping.set()
            await self._drain()
        finally:
            await self._cancel()
            self.ended.set()

    async def _feed(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            await self._slots.acquire()
            message = await self._take()
            if message is None:
                return
            task = loop.create_task(self._handle(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _drain(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._job.shutdown_timeout_s)

    async def _cancel(self) -> None:
        """Cancel handlers that are too late: their messages are released."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _log.warning("%d handlers did not end in time and were cancelled", len(tasks))
            await asyncio.wait(tasks)

    async def _handle(self, message: QueueMessage) -> None:
        job = self._job
        failure: Exception | None = None
        try:
            with nullcontext() if job.tracing is None else job.tracing.processing(message):
                await job.handler(message)
        except asyncio.CancelledError:
            if message.is_held:
                message.release()
            raise
        except Exception as e:  # noqa: BLE001 - whatever a handler raises is its message's fate
            failure = e
        finally:
            self._slots.release()
        if failure is None:
            if message.is_held:
                message.accept()
        else:
            await self._failed(message, failure)
        self._freed()

    async def _failed(self, message: QueueMessage, error: Exception) -> None:
        retry = self._job.retry
        _log.warning("the handler failed on %r, delivery %d: %r", message, message.delivery_count, error)
        if not message.is_held:
            return
        outcome: Callable[[], object] = message.release
        try:
            if message.delivery_count < retry.attempts and retry.worth_another(error):
                await self._back_off(retry.delay(message.delivery_count - 1))
            else:
                outcome = await self._give_up(message, error)
        except asyncio.CancelledError:
            if message.is_held:
                message.release()
            raise
        if message.is_held:
            outcome()

    async def _back_off(self, delay_s: float) -> None:
        """Wait before the next delivery; no longer than until the run stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._stopping.wait()

    async def _give_up(self, message: QueueMessage, error: Exception) -> Callable[[], object]:
        if self._job.dead_letters is None:
            return message.reject
        producer, topic = self._job.dead_letters
        try:
            await producer.send(
                topic,
                message.raw_value,
                key=message.raw_key,
                headers=dead_letter_headers(message, error, message.delivery_count, self._job.group),
                timestamp=message.timestamp,
            )
        except ClientError as e:
            _log.error("no dead letter of %r to %s, it is released: %s", message, topic, e)
            return message.release
        return message.accept
