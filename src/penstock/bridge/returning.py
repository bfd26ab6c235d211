"""Recognises copies that would go back to the place that they came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.bridge.message import Bridged
from penstock.bridge.ports import Source

__all__ = ["Home", "ReturningSource"]


@dataclass(frozen=True, slots=True)
class Home:
    """The place that copies must not go back to.

    `place` is a queue or topic; None for all places of the system. A queue deletes what was copied, so a copy
    in a topic may be the only one: it goes to every queue but its own. A stream of NATS keeps its messages.
    """

    system: str
    place: str | None

    def is_of(self, message: Bridged) -> bool:
        return message.origin == self.system and self.place in (None, message.origin_place)


class ReturningSource:
    """A source whose messages have an origin only if they would go back to their home.

    `report` gets one line when the first such message is delivered: it is acknowledged without a copy.
    """

    def __init__(self, source: Source, home: Home | None, report: Callable[[str], None]) -> None:
        """`home` is None if every message is to be copied."""
        self._source = source
        self._home = home
        self._report = report
        self._is_reported = False

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def lock_s(self) -> float | None:
        return self._source.lock_s

    async def open(self) -> None:
        await self._source.open()

    async def receive(self, limit: int, wait_s: float) -> list[Bridged]:
        return [self._checked(message) for message in await self._source.receive(limit, wait_s)]

    def _checked(self, message: Bridged) -> Bridged:
        if self._home is None or not self._home.is_of(message):
            return message if message.origin is None else replace(message, origin=None)
        if not self._is_reported:
            self._is_reported = True
            self._report(
                f"{self.name}: messages that a bridge copied from {message.origin} {message.origin_place} do "
                "not go back and are skipped; --copies copies them, too"
            )
        return message

    async def acknowledge(self, messages: Sequence[Bridged]) -> None:
        await self._source.acknowledge(messages)

    async def release(self, messages: Sequence[Bridged]) -> None:
        await self._source.release(messages)

    async def extend(self, messages: Sequence[Bridged]) -> None:
        await self._source.extend(messages)

    async def is_drained(self) -> bool:
        return await self._source.is_drained()

    async def close(self) -> None:
        await self._source.close()
