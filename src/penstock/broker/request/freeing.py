"""Frees large messages in portions, one in each iteration of the event loop.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from penstock.wire.portions import PORTION, portions
from penstock.wire.schema import Struct

__all__ = ["FREED_REQUEST_BYTES", "FREED_RESPONSE_BYTES", "Freeing"]

#: A response of more bytes is freed in portions: it may have more than 260,000 elements, which take 12 ms.
FREED_RESPONSE_BYTES: Final = 512 << 10
#: The same of requests. An empty structure of nine bytes may be seven objects: 100,000 of them take 5 ms.
FREED_REQUEST_BYTES: Final = 128 << 10
#: how often, and after which pause, this looks whether a message is still in use
_LOOKS: Final = 40
_PAUSE_S: Final = 0.05
#: the references to a message that nothing else uses when this looks: its own, and that of the call
_OWN_REFERENCES: Final = 2


class Freeing:
    """Messages that are freed in portions, one after the other, and what was known of their elements."""

    __slots__ = ("_steps", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Struct | dict[Any, Any]] = deque()
        #: yields before each portion; None while there is no message
        self._steps: Iterator[float] | None = None

    @property
    def is_idle(self) -> bool:
        return self._steps is None

    def add(self, message: Struct | dict[Any, Any]) -> None:
        """Free a message when nothing else uses it. The caller must drop it soon.

        A dictionary is emptied: nothing else may use it.
        """
        self._waiting.append(message)
        if self._steps is None:
            self._steps = self._free_all()
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        assert self._steps is not None, "scheduled while there are messages"
        pause_s = next(self._steps, None)
        if pause_s is None:
            self._steps = None
        else:
            asyncio.get_running_loop().call_later(pause_s, self._next)

    def _free_all(self) -> Iterator[float]:
        """Free all messages. Yields the pause before each step."""
        while self._waiting:
            message = self._waiting.popleft()
            if isinstance(message, dict):
                while message:
                    for _ in range(min(PORTION, len(message))):
                        message.popitem()
                    yield 0
                continue
            found = []
            for portion in portions(message):
                found.append(portion)
                yield 0
            # One with few objects has no need to wait; it may have the bytes of its frame.
            for _ in range(_LOOKS if len(found) > 1 else 0):
                if sys.getrefcount(message) <= _OWN_REFERENCES:
                    break
                # Its request is not over yet.
                yield _PAUSE_S
            del message, portion
            found.reverse()
            while found:
                found.pop()
                yield 0
