"""An event loop with virtual time and an order of events that a seed decides.

The guarantees of asyncio hold: callbacks of one process run in the order in which they were scheduled, and
timers run no earlier than they are due. The rest is random: which process runs next, and how long the work of
worker threads takes. While callbacks are ready, time passes by one microsecond per callback, so that a
callback that yields for ever does not stop the clock. If none is ready, time jumps to the next timer.

Events outside of processes (bytes on a wire, faults) are events of the world. They run when they are due,
also if a process is paused or dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from heapq import heappop, heappush
from random import Random
from typing import Any, Final, TypeAlias, TypeVar, TypeVarTuple, Unpack

from penstock.testing.disk import PowerLoss
from penstock.testing.simulation.handles import SimHandle, SimTimer
from penstock.testing.simulation.network import Network, SimServer
from penstock.testing.simulation.process import Process, State, abandon, current_process
from penstock.testing.simulation.trace import Trace

__all__ = ["SimLoop", "Stuck"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_STEP_S: Final = 1e-6
#: how long a worker takes to begin, at the most
_WORKER_S: Final = 0.0005
_WORLD: Final = 0xFFFFFFFF
_RUNNING: Final = State.RUNNING
_DEAD: Final = State.DEAD
_Event: TypeAlias = tuple[float, int, Process | None, asyncio.Handle]


class Stuck(Exception):
    """No event is left although a task waits, or the time limit has passed."""


class SimLoop(asyncio.BaseEventLoop):
    """The loop of a simulation. `network` carries bytes, `trace` records events."""

    def __init__(self, seed: object) -> None:
        super().__init__()
        self._rng = Random(f"{seed}/loop")
        self._now = 0.0
        self._events: list[_Event] = []
        self._scheduled_count = 0
        self._halted = False
        self._work_s: dict[str, Callable[[], float]] = {}
        self.processes: list[Process] = []
        #: those that may still have a turn, in the order of their indexes
        self._living: list[Process] = []
        #: the bits of the processes that have a callback; paused and dead ones may be among them
        self._waiting = 0
        #: exceptions of callbacks and tasks of living processes that no code caught
        self.unhandled: list[dict[str, Any]] = []
        #: called after each callback, with the process that it was of
        self.after_step: Callable[[Process], None] | None = None
        self.trace = Trace()
        self.network = Network(self, Random(f"{seed}/network"))
        self.set_exception_handler(SimLoop._note_unhandled)

    # -- time and order

    def time(self) -> float:
        return self._now

    def new_process(self, name: str, host: str) -> Process:
        process = Process(name, host, len(self.processes))
        # Those that have died since are left out: every restart of a broker leaves one behind.
        self._living = [p for p in self._living if p.state is not _DEAD]
        self._living.append(process)
        self.processes.append(process)
        return process

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, context)
        process = current_process(context)
        if process is None:
            self._push(self._now, None, handle)
        elif process.state is not _DEAD:
            process.ready.append(handle)
            self._waiting |= process.bit
        return handle

    call_soon_threadsafe = call_soon  # there are no other threads

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = SimTimer(when, callback, args, self, context)
        process = current_process(context)
        if process is None or process.state is not _DEAD:
            self._push(when, process, timer)
        return timer

    def world_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Have something happen that is of no process."""
        handle = SimHandle(callback, args, self)
        self._push(self._now + delay_s, None, handle)
        return handle

    def _push(self, when: float, process: Process | None, handle: asyncio.Handle) -> None:
        self._scheduled_count += 1
        heappush(self._events, (when, self._scheduled_count, process, handle))

    def _run_once(self) -> None:
        """Callbacks, one after the other, until the loop is stopped.

        Asyncio calls this for one round of callbacks. A round here lasts to the end: the call would cost as
        much as a choice does.
        """
        events = self._events
        while True:
            if events and events[0][0] <= self._now:
                self._take_due()
            process = self._choose()
            while process is None:
                if self._halted:
                    return
                if not events:
                    raise Stuck(f"nothing is left to happen at {self._now:.3f} s")
                self._now = max(self._now, events[0][0])
                self._take_due()
                process = self._choose()
            handle = process.ready.popleft()
            if not process.ready:
                self._waiting &= ~process.bit
            if not handle._cancelled:
                self._now += _STEP_S
                self.trace.step(self._now, process.index)
                handle._run()
                if self.after_step is not None:
                    self.after_step(process)
            if self._halted:
                return

    def _take_due(self) -> None:
        """Run the world's events that are due, and queue the due timers of processes."""
        events = self._events
        while events and events[0][0] <= self._now:
            when, _, process, handle = heappop(events)
            if handle._cancelled:
                continue
            if process is None:
                self.trace.step(when, _WORLD)
                handle._run()
                if self._halted:
                    return
            elif process.state is not _DEAD:
                process.ready.append(handle)
                self._waiting |= process.bit

    def _choose(self) -> Process | None:
        """The process whose turn it is, None if none can run."""
        waiting = self._waiting
        if not waiting:
            return None
        if not waiting & (waiting - 1):
            only = self.processes[waiting.bit_length() - 1]
            return only if only.ready and only.state is _RUNNING else None
        ready = [p for p in self._living if p.ready and p.state is _RUNNING]
        if len(ready) < 2:
            return ready[0] if ready else None
        return ready[int(self._rng.random() * len(ready))]

    # -- tasks and workers

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        process = current_process(context)
        task = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        if process is not None:
            process.started(task)
        return task

    def set_work_time(self, host: str, sample: Callable[[], float]) -> None:
        """How long a job of a worker of this host waits for its disk."""
        self._work_s[host] = sample

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run `func` at some moment of the time that it takes; the caller hears of it at the end."""
        process = current_process()
        assert process is not None, "only processes have workers"
        future: asyncio.Future[T] = self.create_future()
        sample = self._work_s.get(process.host)
        takes_s = self._rng.random() * _WORKER_S + (sample() if sample else 0.0)
        before_s = self._rng.random() * takes_s

        def work() -> None:
            if process.state is _DEAD:
                return
            result: T | None = None
            error: BaseException | None = None
            try:
                result = process.context.copy().run(func, *args)
            except BaseException as e:  # noqa: BLE001 - handed to the waiting task
                error = e
            self._push(
                self._now + takes_s - before_s, process, self._handle(process, _end, future, result, error)
            )

        self._push(self._now + before_s, None, SimHandle(work, (), self))
        return future

    def _handle(self, process: Process, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        return SimHandle(callback, args, self, process.context)

    def deliver(self, process: Process, callback: Callable[..., object], *args: Any) -> None:
        """Queue a callback of the process: the kernel has something for it."""
        if process.state is not _DEAD:
            process.ready.append(SimHandle(callback, args, self, process.context))
            self._waiting |= process.bit

    # -- network

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> SimServer:
        process = current_process()
        assert process is not None, "only processes have sockets"
        server = self.network.bind(process, protocol_factory, host, port)
        if options.get("start_serving", True):
            await server.start_serving()
        return server

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        process = current_process()
        assert process is not None, "only processes have sockets"
        return await self.network.connect(process, protocol_factory, host, port)

    # -- running

    def stop(self) -> None:
        """End `run` after the event at hand."""
        self._halted = True
        super().stop()

    def run(self, main: Awaitable[T], limit_s: float) -> T:
        """The result of `main`, which belongs to no process; Stuck after `limit_s` of virtual time."""

        async def bounded() -> T:
            return await main

        task = asyncio.Task(bounded(), loop=self)
        self._halted = False
        alarm = self.world_later(limit_s, self.stop)
        try:
            task.add_done_callback(lambda _: self.stop())
            self.run_forever()
            if not task.done():
                raise Stuck(f"not done after {limit_s} s of virtual time")
            return task.result()
        finally:
            alarm.cancel()
            abandon(task)

    def close(self) -> None:
        """End everything that is left."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.bury()
        self._events.clear()
        super().close()

    @staticmethod
    def _note_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        assert isinstance(loop, SimLoop)
        process = current_process()
        if (process is None or not process.is_dead) and not isinstance(context.get("exception"), PowerLoss):
            loop.unhandled.append(context)


def _end(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    """Complete the future of a worker's call."""
    if not future.cancelled():
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
