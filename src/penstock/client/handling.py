"""Runs a handler: attempts, then the dead-letter topic, and a span if the program traces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from penstock.client.dead_letters import dead_letter_headers
from penstock.client.errors import HandlerFailed
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.retrying import RetryPolicy
from penstock.client.tracing import Tracing

__all__ = ["IN_HANDLER", "Handler", "Handling", "sender_to"]

Handler: TypeAlias = Callable[[Message], Awaitable[object]]
#: true in a handler, which must not wait for the end of the run that has called it
IN_HANDLER: Final[ContextVar[bool]] = ContextVar("penstock_in_handler", default=False)


@asynccontextmanager
async def sender_to(
    dead_letter: str | None, bootstrap: str, security: Mapping[str, Any]
) -> AsyncIterator[tuple[Producer, str] | None]:
    """A producer for the dead-letter topic; None without such a topic."""
    if dead_letter is None:
        yield None
        return
    async with Producer(bootstrap, config=security) as producer:
        yield producer, dead_letter


class Handling:
    """Handles a message: returns when it is done, or safe in the dead-letter topic."""

    def __init__(
        self,
        handler: Handler,
        retry: RetryPolicy,
        dead_letters: tuple[Producer, str] | None,
        tracing: Tracing | None,
        group: str,
    ) -> None:
        self._handler = handler
        self._retry = retry
        self._dead_letters = dead_letters
        self._tracing = tracing
        self._group = group

    async def handle(self, message: Message) -> None:
        delays = self._retry.delays()
        attempt = 1
        while True:
            token = IN_HANDLER.set(True)
            try:
                with nullcontext() if self._tracing is None else self._tracing.processing(message):
                    await self._handler(message)
                return None
            except Exception as e:  # noqa: BLE001 - whatever a handler raises is its message's fate
                delay = next(delays, None) if self._retry.worth_another(e) else None
                if delay is None:
                    return await self._give_up(message, e, attempt)
            finally:
                IN_HANDLER.reset(token)
            await asyncio.sleep(delay)
            attempt += 1

    async def _give_up(self, message: Message, error: Exception, attempts: int) -> None:
        if self._dead_letters is None:
            raise HandlerFailed(message.topic_partition, message.offset, attempts, error) from error
        producer, topic = self._dead_letters
        await producer.send(
            topic,
            message.raw_value,
            key=message.raw_key,
            headers=dead_letter_headers(message, error, attempts, self._group),
            timestamp=message.timestamp,
        )
