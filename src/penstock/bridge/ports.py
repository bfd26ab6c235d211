"""The interfaces of the two ends of a bridge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from penstock.bridge.errors import WriteFailed
from penstock.bridge.message import Bridged

__all__ = ["Done", "Source", "Target"]

#: called on the event loop when a message is stored (None), or has failed
Done: TypeAlias = Callable[[WriteFailed | None], None]


class Source(Protocol):
    """Delivers messages until they are acknowledged.

    Every method may raise `ConnectionLost`; then `close` and `open` are called, and all handles are void.
    """

    @property
    def name(self) -> str:
        """The system and the place, for messages to the user."""

    @property
    def lock_s(self) -> float | None:
        """Seconds after which a message is delivered again, unless `extend` was called; None if never."""

    async def open(self) -> None:
        """Connect. `BridgeError` if there is no such stream or queue."""

    async def receive(self, limit: int, wait_s: float) -> list[Bridged]:
        """Up to `limit` messages, as soon as there are any; none after `wait_s`."""

    async def acknowledge(self, messages: Sequence[Bridged]) -> None:
        """The messages are copied, and must not be delivered again."""

    async def release(self, messages: Sequence[Bridged]) -> None:
        """The messages are not copied, and may be delivered again at once."""

    async def extend(self, messages: Sequence[Bridged]) -> None:
        """The messages are in flight: do not deliver them again yet."""

    async def is_drained(self) -> bool:
        """Returns true if no message is left, as far as the source knows."""

    async def close(self) -> None:
        """Disconnect. Never raises."""


class Target(Protocol):
    """Stores messages."""

    @property
    def name(self) -> str:
        """The system and the place, for messages to the user."""

    @property
    def system(self) -> str:
        """Messages whose `origin` is this system are not copied back."""

    async def open(self) -> None:
        """Connect. `BridgeError` if there is no such topic or queue."""

    async def write(self, message: Bridged, done: Done) -> None:
        """Begin to store a message, in the order of the calls. `done` is called once, perhaps at once."""

    async def close(self) -> None:
        """Disconnect. Never raises."""
