"""How often something is tried again, and how long the client waits in between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.client.errors import MisusedClient, SerializationError

__all__ = ["RetryPolicy"]

#: a rest does not double more often, whatever max_backoff is
_DOUBLINGS: Final = 30


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
            yield self.delay(retry)

    def delay(self, retry: int) -> float:
        """The rest before a retry; the first one has the number 0."""
        return min(self.max_backoff, self.backoff * 2.0 ** min(retry, _DOUBLINGS)) * random.uniform(0.5, 1.0)

    def worth_another(self, error: Exception) -> bool:
        # Bytes that cannot be read do not get better.
        return isinstance(error, self.retry_on) and not isinstance(error, SerializationError)
