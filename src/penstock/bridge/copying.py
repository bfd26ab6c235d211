"""The loop of a bridge: receive, write, and acknowledge what the target has stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

from penstock.bridge.errors import BridgeError, ConnectionLost, WriteFailed
from penstock.bridge.message import Bridged
from penstock.bridge.ports import Source, Target
from penstock.bridge.window import Counts, Entry, Window

__all__ = ["Copier", "CopySettings", "Refusal"]

#: what to do with a message that the target refuses
Refusal: TypeAlias = Literal["stop", "release"]
#: a source is at its end after so many polls without a message
_IDLE_POLLS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """How to copy. Times are in seconds."""

    in_flight: int = 1000
    count: int | None = None
    exit_at_end: bool = False
    refused: Refusal = "stop"
    poll_s: float = 0.5
    backoff_s: float = 0.5
    backoff_max_s: float = 10.0
    drain_s: float = 30.0


class Copier:
    """Copies from a source to a target until it is stopped.

    One task receives and acknowledges. Writes are in flight meanwhile, up to `in_flight` messages. They begin
    in the order of delivery, so the order of a key is kept unless a write fails or a message is redelivered.
    """

    def __init__(
        self,
        source: Source,
        target: Target,
        settings: CopySettings,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._source = source
        self._target = target
        self._settings = settings
        self._is_stopped = is_stopped
        self._report = report
        self._window = Window(settings.in_flight, target.system)
        self._progress = asyncio.Event()
        self._idle_polls = 0
        self._extend_at = 0.0
        #: the pause before failed writes begin again; it grows until a write succeeds
        self._backoff_s = settings.backoff_s

    @property
    def counts(self) -> Counts:
        return self._window.counts

    async def run(self) -> Counts:
        """Copy until the settings or `is_stopped` end it.

        An error of the first connection is raised: the address is wrong. Later ones are retried.
        """
        try:
            await self._target.open()
            await self._source.open()
            while True:
                try:
                    await self._copy()
                    return self.counts
                except ConnectionLost as error:
                    await self._reopen(error)
        finally:
            await self._source.close()
            await self._target.close()

    async def _reopen(self, error: ConnectionLost) -> None:
        """Open the source again, until it succeeds or the bridge is stopped."""
        self._window.lose()
        self._idle_polls = 0
        self._report(f"{self._source.name}: {error}; connecting again")
        backoff_s = self._settings.backoff_s
        while not self._is_stopped():
            await self._source.close()
            await self._pause(backoff_s)
            try:
                await self._source.open()
                self._report(f"{self._source.name}: connected")
                return
            except ConnectionLost:
                backoff_s = min(2 * backoff_s, self._settings.backoff_max_s)

    async def _pause(self, seconds: float) -> None:
        """Sleep, and wake up early if the bridge is stopped."""
        now = asyncio.get_running_loop().time
        end = now() + seconds
        while True:
            await asyncio.sleep(min(max(0.0, end - now()), self._settings.poll_s))
            if now() >= end or self._is_stopped():
                return

    async def _copy(self) -> None:
        while not await self._is_finished():
            room = self._room()
            if room > 0:
                messages = await self._source.receive(room, self._settings.poll_s)
                self._idle_polls = 0 if messages else self._idle_polls + 1
                await self._begin(messages)
            else:
                await self._wait_for_writes()
            await self._settle()
        await self._drain()

    def _room(self) -> int:
        """How many messages to receive now."""
        room, count = self._window.room, self._settings.count
        return room if count is None else min(room, count - self._under_way)

    @property
    def _under_way(self) -> int:
        """Messages that are copied or will be."""
        return self.counts.acknowledged - self.counts.skipped + len(self._window)

    async def _is_finished(self) -> bool:
        if self._is_stopped():
            return True
        if self._settings.count is not None and self._under_way >= self._settings.count:
            return True
        if not self._settings.exit_at_end or self._idle_polls < _IDLE_POLLS or len(self._window):
            return False
        return await self._source.is_drained()

    async def _begin(self, messages: Sequence[Bridged]) -> None:
        entries = [self._window.add(message) for message in messages]
        await self._write([entry for entry in entries if entry is not None])

    async def _write(self, entries: Sequence[Entry]) -> None:
        """Begin to write messages in their order.

        A write that fails before it returns has found the target unreachable, which may take many seconds.
        The messages after it fail with the same error, without an attempt to connect for each of them.
        """
        unreachable: WriteFailed | None = None
        for entry in entries:
            if unreachable is not None:
                self._written(entry, unreachable)
                continue
            await self._target.write(entry.message, partial(self._written, entry))
            if entry.error is not None and entry.error.retriable:
                unreachable = entry.error

    def _written(self, entry: Entry, error: WriteFailed | None) -> None:
        if error is None:
            self._backoff_s = self._settings.backoff_s
            self._window.wrote(entry)
        else:
            self._window.failed(entry, error)
        self._progress.set()

    async def _wait_for_writes(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._progress.wait(), self._settings.poll_s)
        self._progress.clear()

    async def _settle(self) -> None:
        """Acknowledge stored messages, give failed ones back, and keep the locks of the others."""
        due = self._window.take_due()
        if due:
            await self._source.acknowledge([entry.message for entry in due])
            self._window.acknowledged(due)
        failed = self._window.take_failed()
        if failed:
            await self._handle_failed(failed)
        lock_s, now = self._source.lock_s, asyncio.get_running_loop().time()
        if lock_s is not None and now >= self._extend_at:
            if self._extend_at and len(self._window):
                await self._source.extend([entry.message for entry in self._window.pending()])
            self._extend_at = now + lock_s / 3

    async def _handle_failed(self, failed: list[Entry]) -> None:
        """Write messages again if that may succeed, and give refused ones back.

        Why not give all of them back: sources count deliveries, and drop a message after the last one.
        """
        refused = [entry for entry in failed if entry.error is not None and not entry.error.retriable]
        if refused:
            await self._give_back(refused)
        others = [entry for entry in failed if entry.error is not None and entry.error.retriable]
        if others and not self._is_stopped():
            self._report(f"{self._target.name}: {others[0].error}; writing {len(others)} messages again")
            await self._pause(self._retry_pause_s())
        if not self._is_stopped():
            self._window.retry(others)
            await self._write(others)
            return
        # The messages stay failed. They go back to the source when the other writes have ended.
        for entry in others:
            if entry.error is not None:
                self._window.failed(entry, entry.error)

    def _retry_pause_s(self) -> float:
        """The pause before the next attempt. Locks are not extended meanwhile, so it is shorter than them."""
        lock_s, pause_s = self._source.lock_s, self._backoff_s
        self._backoff_s = min(2 * pause_s, self._settings.backoff_max_s)
        return pause_s if lock_s is None else min(pause_s, lock_s / 3)

    async def _give_back(self, refused: list[Entry]) -> None:
        first = refused[0]
        text = f"{self._target.name} refuses message {first.message.id} of {self._source.name}: {first.error}"
        messages = [entry.message for entry in refused]
        if self._settings.refused == "stop":
            with suppress(ConnectionLost):
                await self._source.release(messages)
            raise BridgeError(
                f"{text}. Correct the cause; --refused release leaves such messages to a source that takes "
                "them back"
            )
        self._report(f"{text}; {len(refused)} messages go back to the source")
        await self._source.release(messages)
        self._window.released(refused)
        await self._pause(self._settings.backoff_s)

    async def _drain(self) -> None:
        """Wait for the writes that have begun, acknowledge them, and give the rest back."""
        deadline = asyncio.get_running_loop().time() + self._settings.drain_s
        while self._window.is_writing and asyncio.get_running_loop().time() < deadline:
            await self._wait_for_writes()
            await self._settle()
        await self._settle()
        rest = self._window.pending()
        if rest:
            await self._source.release([entry.message for entry in rest])
            self._window.released(rest)
