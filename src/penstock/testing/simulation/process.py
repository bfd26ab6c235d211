"""Processes of the simulation: each callback belongs to one.

All processes share one loop. Each has a queue of its own, which is served in order, as asyncio promises;
which process is next is the seed's choice. A callback belongs to the process in whose context it was
scheduled, so the code under test need not know that several processes share its loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from typing import Any, Final

__all__ = ["Process", "State", "abandon", "current_process"]

#: Tasks that are done are forgotten whenever so many more have been started.
_TASKS_KEPT: Final = 256
_current: ContextVar[Process] = ContextVar("penstock_simulated_process")


class State(Enum):
    RUNNING = "running"
    #: callbacks that are due wait (SIGSTOP, or a machine that swaps)
    PAUSED = "paused"
    #: nothing of it ever runs again
    DEAD = "dead"


class Process:
    """One operating system process: a queue of callbacks that is served, held, or gone."""

    __slots__ = ("_tasks", "_tasks_limit", "bit", "context", "host", "index", "name", "ready", "state")

    def __init__(self, name: str, host: str, index: int) -> None:
        """`index` is the number of the processes that the loop had before."""
        self.name = name
        self.index = index
        #: of the loop's set of processes with a callback
        self.bit = 1 << index
        self.host = host
        self.state = State.RUNNING
        self.ready: deque[asyncio.Handle] = deque()
        self.context: Context = copy_context()
        self.context.run(_current.set, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_limit = _TASKS_KEPT

    def __repr__(self) -> str:
        return f"<Process {self.name} {self.state.value}>"

    @property
    def is_dead(self) -> bool:
        return self.state is State.DEAD

    def spawn(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` as a task of this process."""
        return loop.create_task(work, context=self.context.copy())

    def started(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to a task, so that it is not finalized when its process dies during the run."""
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_limit:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks_limit = len(self._tasks) + _TASKS_KEPT

    def pause(self) -> None:
        if not self.is_dead:
            self.state = State.PAUSED

    def resume(self) -> None:
        """Run again. Timers that are due run before bytes are read, as in libuv."""
        if self.state is State.PAUSED:
            timers = [handle for handle in self.ready if isinstance(handle, asyncio.TimerHandle)]
            others = [handle for handle in self.ready if not isinstance(handle, asyncio.TimerHandle)]
            self.ready = deque([*timers, *others])
            self.state = State.RUNNING

    def kill(self) -> None:
        """From now on nothing of this process runs, not even its `finally` clauses."""
        self.state = State.DEAD
        self.ready.clear()

    def bury(self) -> None:
        """End the tasks of a dead process, after the run."""
        assert self.is_dead
        for task in self._tasks:
            abandon(task)
        self._tasks.clear()


def current_process(context: Context | None = None) -> Process | None:
    """The process that `context`, or the current one, belongs to; None if it belongs to none."""
    return _current.get(None) if context is None else context.get(_current)


def abandon(task: asyncio.Task[Any]) -> None:
    """End a task that will not run again; errors of its clean-up code are ignored."""
    if task.done():
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert isinstance(coroutine, Coroutine)
    try:
        coroutine.close()
    except BaseException as e:  # noqa: BLE001 - clean-up on a machine that is off fails in any way it likes
        del e
