"""Runs a handler: attempts, then the dead-letter topic, and a span if the program traces."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from penstock.client.errors import HandlerFailed, MisusedClient, SerializationError
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.tracing import Tracing

__all__ = ["Handler", "Handling", "RetryPolicy"]

Handler: TypeAlias = Callable[[Message], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a handler is tried, and how long it rests in between.

    The rests double from `backoff` to `max_backoff` seconds, each up to half shorter by chance, so that many
    consumers do not come back at once.
    """

    attempts: int = 3
    backoff: float = 0.1
    max_backoff: float = 10.0
    retry_on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.backoff < 0:
            raise MisusedClient("a retry policy needs at least one attempt and a backoff of 0 or more")

    def delays(self) -> Iterator[float]:
        """The rests between the attempts: one fewer than attempts."""
        for retry in range(self.attempts - 1):
            yield min(self.max_backoff, self.backoff * 2**retry) * random.uniform(0.5, 1.0)

    def worth_another(self, error: Exception) -> bool:
        # Bytes that cannot be read do not get better.
        return isinstance(error, self.retry_on) and not isinstance(error, SerializationError)


class Handling:
    """Handles a message: returns when it is done, or safe in the dead-letter topic."""

    def __init__(
        self,
        handler: Handler,
        retry: RetryPolicy,
        dead_letters: tuple[Producer, str] | None,
        tracing: Tracing | None,
    ) -> None:
        self._handler = handler
        self._retry = retry
        self._dead_letters = dead_letters
        self._tracing = tracing

    async def handle(self, message: Message) -> None:
        delays = self._retry.delays()
        attempt = 1
        while True:
            try:
                with nullcontext() if self._tracing is None else self._tracing.processing(message):
                    await self._handler(message)
                return None
            except Exception as e:  # noqa: BLE001 - whatever a handler raises is its message's fate
                delay = next(delays, None) if self._retry.worth_another(e) else None
                if delay is None:
                    return await self._give_up(message, e, attempt)
            await asyncio.sleep(delay)
            attempt += 1

    async def _give_up(self, message: Message, error: Exception, attempts: int) -> None:
        if self._dead_letters is None:
            raise HandlerFailed(
                f"the handler failed {attempts} time(s) on {message.topic_partition} offset {message.offset} "
                f"({error!r}): fix it, or pass dead_letter= to continue after such messages"
            ) from error
        producer, topic = self._dead_letters
        origin = {
            "penstock.dead-letter.reason": str(error) or repr(error),
            "penstock.dead-letter.exception": f"{type(error).__module__}.{type(error).__qualname__}",
            "penstock.dead-letter.topic": message.topic,
            "penstock.dead-letter.partition": str(message.partition),
            "penstock.dead-letter.offset": str(message.offset),
            "penstock.dead-letter.attempts": str(attempts),
        }
        kept = [(name, value) for name, value in message.headers if value is not None]
        await producer.send(
            topic,
            message.raw_value,
            key=message.raw_key,
            headers=kept + [(name, value.encode()) for name, value in origin.items()],
            timestamp=message.timestamp,
        )
