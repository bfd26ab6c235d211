"""Rounds: something that a broker does again and again, from its start to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.model.errors import PenstockError

__all__ = ["Rounds"]


class Rounds:
    """Runs a round, waits, and runs the next one, also after a round that has failed."""

    __slots__ = ("_pause_s", "_report", "_run", "_task", "_waits_first")

    def __init__(
        self,
        run: Callable[[], Awaitable[None]],
        pause_s: Callable[[], float],
        report: Callable[[Exception, bool], None],
        *,
        waits_first: bool = True,
    ) -> None:
        """`report` logs a failure: the error, and whether errors like it are expected (disks, peers, stores).

        `waits_first` has the first round begin after a pause.
        """
        self._run = run
        self._pause_s = pause_s
        self._report = report
        self._waits_first = waits_first
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        """Cancel the round that is under way, and return when it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _repeat(self) -> None:
        if self._waits_first:
            await asyncio.sleep(self._pause_s())
        while True:
            try:
                await self._run()
            except (PenstockError, OSError) as e:
                self._report(e, True)
            except Exception as e:  # noqa: BLE001 - the next round may work
                self._report(e, False)
            await asyncio.sleep(self._pause_s())
