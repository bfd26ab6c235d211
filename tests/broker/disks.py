"""Disks for brokers under test: one whose syncs can be held up, and several under one roof."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from random import Random
from time import sleep
from typing import TypeVar

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import new_event_loop, system_world
from penstock.broker.base.system_ports import SystemClock
from penstock.model.config import BrokerConfig
from penstock.ports import Buffer, File, Files, Space
from penstock.storage.memory import Inode
from penstock.testing.disk import FaultyDisk

__all__ = ["BrokerOnDisk", "Disk", "Volumes", "on_disk"]

T = TypeVar("T")


class Disk(FaultyDisk):
    """A faulty disk that counts its syncs and lets them wait."""

    def __init__(self) -> None:
        super().__init__(Random(0), SystemClock())
        self.syncs = 0
        #: set while the sync that `hold_next_sync` requested waits
        self.holding = threading.Event()
        self._hold_next = False
        self._open = threading.Event()
        self._open.set()

    def hold_syncs(self) -> None:
        """Let all syncs wait for `release_syncs`."""
        self._open.clear()

    def hold_next_sync(self) -> None:
        """Let the next sync wait for `release_syncs`, and those after it pass."""
        self._hold_next = True

    def release_syncs(self) -> None:
        self.holding.clear()
        self._open.set()

    def sync(self, inode: Inode) -> None:
        if self._hold_next:
            self._hold_next = False
            self.holding.set()
            while self.holding.is_set():
                sleep(0.001)
        self._open.wait()
        super().sync(inode)
        self.syncs += 1


class Volumes:
    """Several disks, each mounted under its name: `/NAME/...`."""

    def __init__(self, **disks: Files) -> None:
        self._disks = disks

    def _at(self, path: str) -> Files:
        return self._disks[path.split("/")[1]]

    def open(self, path: str, *, create: bool = False) -> File:
        return self._at(path).open(path, create=create)

    def exists(self, path: str) -> bool:
        return not path.strip("/") or self._at(path).exists(path)

    def is_dir(self, path: str) -> bool:
        return self._at(path).is_dir(path)

    def listdir(self, path: str) -> list[str]:
        return self._at(path).listdir(path)

    def makedirs(self, path: str) -> None:
        self._at(path).makedirs(path)

    def size(self, path: str) -> int:
        return self._at(path).size(path)

    def takes_appends(self, path: str) -> bool:
        return self._at(path).takes_appends(path)

    def read(self, path: str) -> bytes:
        return self._at(path).read(path)

    def write_atomic(self, path: str, data: Buffer) -> None:
        self._at(path).write_atomic(path, data)

    def rename(self, old: str, new: str) -> None:
        self._at(old).rename(old, new)

    def remove(self, path: str) -> None:
        self._at(path).remove(path)

    def rmtree(self, path: str) -> None:
        self._at(path).rmtree(path)

    def sync_dir(self, path: str) -> None:
        # Where the disks are mounted, there is nothing to sync.
        if path.strip("/"):
            self._at(path).sync_dir(path)

    def modified_ms(self, path: str) -> int:
        return self._at(path).modified_ms(path)

    def lock(self, path: str) -> File:
        return self._at(path).lock(path)

    def space(self, path: str) -> Space:
        return self._at(path).space(path)


class BrokerOnDisk:
    """A broker in a thread, with files of the test's choice."""

    def __init__(self, config: BrokerConfig, files: Files) -> None:
        self._config = config
        self._files = files
        self._ready: Future[None] = Future()
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="broker-on-disk")
        self.broker: Broker

    @property
    def bootstrap(self) -> str:
        return self.broker.address

    def start(self) -> None:
        self._thread.start()
        self._ready.result()

    def call(self, function: Callable[[], T]) -> T:
        """What `function` returns where the broker's state lives, in its thread."""
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(function()))
        return done.result(60)

    def look_for_room(self) -> None:
        """Have it notice now which disks have become full, and which of those have room again."""
        for _ in range(2):
            asyncio.run_coroutine_threadsafe(
                self.broker.stages.healing.full_directories.look(), self._loop
            ).result(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        world = system_world(self._config)._replace(files=self._files)
        try:
            self.broker = await Broker.open(self._config, world)
            await self.broker.start()
        except BaseException as e:  # noqa: BLE001 - raised again in the thread that waits for it
            self._ready.set_exception(e)
            return
        self._ready.set_result(None)
        await self._stop.wait()
        await self.broker.stop()


@contextmanager
def on_disk(files: Files, dirs: str = "/disk", **settings: str) -> Iterator[BrokerOnDisk]:
    """A broker on `files`; settings under Kafka's names, with `_` for `.`."""
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": dirs,
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    running = BrokerOnDisk(BrokerConfig(config), files)
    running.start()
    try:
        yield running
    finally:
        running.stop()
