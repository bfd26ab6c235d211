"""A broker on a machine whose power can go: a disk that forgets what was not synced, and real sockets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from random import Random

from lab.server import HOST, free_port
from penstock.broker.app.broker import Broker, World
from penstock.broker.app.server import new_event_loop
from penstock.broker.base.system_ports import SystemClock, SystemRng
from penstock.broker.base.workers import SystemWorkers
from penstock.model.config import BrokerConfig
from penstock.storage.memory import Inode
from penstock.testing.disk import FaultyDisk, PowerLoss

__all__ = ["Machine"]

_SYNC_S = 0.001


class _Disk(FaultyDisk):
    """Syncs take as long as on a fast real disk, so that writes arrive meanwhile."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng, SystemClock())
        self.went_off = threading.Event()
        #: called in the moment in which the power goes, by whichever thread
        self.when_off: Callable[[], object] = int

    def sync(self, inode: Inode) -> None:
        super().sync(inode)
        time.sleep(_SYNC_S)  # the latency of a disk

    def power_off(self) -> None:
        self._off = True
        self._go_off()

    def _changed(self) -> None:
        try:
            super()._changed()
        except PowerLoss:
            self._go_off()
            raise

    def _go_off(self) -> None:
        self.went_off.set()
        self.when_off()


class Machine:
    """`start` boots it, `cut_power_after` chooses the moment of its end, `wait_for_power_loss` buries it."""

    def __init__(self, rng: Random, **settings: str) -> None:
        self.bootstrap = f"{HOST}:{free_port()}"
        self._disk = _Disk(rng)
        self._config = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": "/disk",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self._thread: threading.Thread
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop

    def cut_power_after(self, changes: int) -> None:
        """Let the power go at the n-th change of the disk from now on."""
        self._disk.crash_at = self._disk.changes + changes

    def start(self) -> bool:
        """Boot; False if the power went on the way up."""
        up = threading.Event()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                with asyncio.Runner(loop_factory=new_event_loop) as runner:
                    runner.run(self._serve(up))
            except PowerLoss:
                self._disk.went_off.set()
            except BaseException as e:  # noqa: BLE001 - raised again in the thread that waits for it
                failed.append(e)
            finally:
                up.set()

        self._thread = threading.Thread(target=run, name="machine")
        self._thread.start()
        up.wait()
        if failed:
            raise failed[0]
        return not self._disk.went_off.is_set()

    def cut_power(self) -> None:
        """Let the power go now."""
        self._disk.power_off()
        self.wait_for_power_loss()

    def wait_for_power_loss(self, *, only_killed: bool = False) -> None:
        """Return when the machine is off, and what its disk has is settled.

        With `only_killed` it was the process that died: what it wrote is still in the system's cache.
        """
        assert self._disk.went_off.wait(60), "the disk did not change that often"
        self._end()
        self._disk.restart(power_loss=not only_killed)
        self._disk.went_off.clear()

    def stop(self) -> None:
        """An orderly end."""
        self._end()

    def _end(self) -> None:
        # A machine whose power went on the way up has closed its loop by itself.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self, up: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_ignore_power_loss)
        self._stop = asyncio.Event()
        workers = SystemWorkers(lambda: 2)
        off = asyncio.Event()
        self._disk.when_off = partial(_report, self._loop, off)
        try:
            world = World(SystemClock(), SystemRng(), self._disk, workers)
            broker = await Broker.open(BrokerConfig(self._config), world)
        except BaseException:
            workers.close()
            raise
        try:
            if await _unless(off, broker.start()):
                up.set()
                await self._stop.wait()
        finally:
            if self._disk.went_off.is_set():
                # A machine without power says nothing more; only our own process has to be tidied up.
                await broker.stages.listening.server.stop()
                await broker.serving.dispatcher.stop()
                await broker.stages.replication.maintenance.stop()
                workers.close()
            else:
                await broker.stop()


def _report(loop: asyncio.AbstractEventLoop, off: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(off.set)


async def _unless(off: asyncio.Event, start: Coroutine[None, None, None]) -> bool:
    """Whether the broker started before the power went: the death of one of its tasks leaves it waiting."""
    starting = asyncio.ensure_future(start)
    going_off = asyncio.ensure_future(off.wait())
    await asyncio.wait({starting, going_off}, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        going_off.cancel()
        await starting
        return True
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    return False


def _ignore_power_loss(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    if not isinstance(context.get("exception"), PowerLoss):
        loop.default_exception_handler(context)
