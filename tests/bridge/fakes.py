"""A source and a target in memory, whose failures a test chooses."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from penstock.bridge.errors import ConnectionLost, WriteFailed
from penstock.bridge.message import Bridged
from penstock.bridge.ports import Done

__all__ = ["FakeSource", "FakeTarget", "message"]


def message(number: int, *, unique: bool = True, origin: str | None = None, handle: object = None) -> Bridged:
    return Bridged(
        body=b"%d" % number,
        system="nats",
        place="orders",
        id=f"S:{number}",
        has_unique_id=unique,
        origin=origin,
        handle=number if handle is None else handle,
    )


class FakeSource:
    """Delivers messages again until they are acknowledged, in their order after a reconnection."""

    name = "source"
    lock_s: float | None = None

    def __init__(self, messages: Iterable[Bridged]) -> None:
        self._messages = {each.id: each for each in messages}
        self._ready: deque[Bridged] = deque()
        self.acknowledged: list[str | None] = []
        self.released: list[str | None] = []
        self.extended: list[str | None] = []
        self.opened = 0
        self.closed = 0
        #: raised by the next call of a method of this name
        self.fails: dict[str, Exception] = {}

    def _fail(self, name: str) -> None:
        if name in self.fails:
            raise self.fails.pop(name)

    async def open(self) -> None:
        self._fail("open")
        self.opened += 1
        self._ready = deque(self._messages.values())

    def deliver_again(self, id_: str) -> None:
        self._ready.append(self._messages[id_])

    async def receive(self, limit: int, wait_s: float) -> list[Bridged]:
        self._fail("receive")
        await asyncio.sleep(0)
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    async def acknowledge(self, messages: Sequence[Bridged]) -> None:
        self._fail("acknowledge")
        for each in messages:
            self.acknowledged.append(each.id)
            self._messages.pop(each.id, None)

    async def release(self, messages: Sequence[Bridged]) -> None:
        self._fail("release")
        self.released += [each.id for each in messages]
        self._ready += messages

    async def extend(self, messages: Sequence[Bridged]) -> None:
        self.extended += [each.id for each in messages]

    async def is_drained(self) -> bool:
        return not self._messages

    async def close(self) -> None:
        self.closed += 1


class FakeTarget:
    """Stores messages at once, unless `answer` has an error for a message, which comes later."""

    name = "target"
    system = "kafka"

    def __init__(self, answer: Callable[[Bridged], WriteFailed | None] = lambda _: None) -> None:
        self._answer = answer
        self.stored: list[str | None] = []
        #: while it is set, writes fail with it before they return
        self.unreachable: WriteFailed | None = None
        #: writes that found the target unreachable
        self.attempts = 0
        #: while it is set, writes are kept here without a result
        self.held: list[tuple[Bridged, Done]] | None = None

    async def open(self) -> None: ...

    async def write(self, message: Bridged, done: Done) -> None:
        if self.held is not None:
            self.held.append((message, done))
            return
        if self.unreachable is not None:
            self.attempts += 1
            done(self.unreachable)
            return
        error = self._answer(message)
        if error is None:
            self.stored.append(message.id)
            done(None)
        else:
            asyncio.get_running_loop().call_soon(done, error)

    async def close(self) -> None: ...


def lost(text: str = "the server is gone") -> ConnectionLost:
    return ConnectionLost(text)
