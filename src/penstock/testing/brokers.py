"""A broker in a thread of this process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import new_event_loop, start_unless, system_world
from penstock.model.config import BrokerConfig
from penstock.net.listener import Listener
from penstock.ports import Files, World
from penstock.testing.security import SECURE_LISTENER, new_security

__all__ = ["BrokerThread", "broker"]


class BrokerThread:
    """A broker with an event loop and a thread of its own; `broker()` gives one that runs."""

    def __init__(
        self,
        settings: Mapping[str, object],
        client: Mapping[str, str] | None = None,
        mount: tuple[str, int | None] | None = None,
    ) -> None:
        """`mount` is the address of a backup, and a moment in milliseconds since 1970."""
        #: settings that librdkafka's clients need beside `bootstrap.servers`
        self.client_config = dict(client or {})
        self._settings = {name: str(value) for name, value in settings.items()}
        self._mount = mount
        #: kept over restarts, so that memory outlives the broker as a disk would
        self._files: Files | None = None
        #: set when the broker can be stopped
        self._launched: threading.Event
        #: set when it is ready, or will never be
        self._started: threading.Event
        self._end: asyncio.Event
        self._killed = False
        self._loop: asyncio.AbstractEventLoop
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.broker: Broker

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers`."""
        return self.broker.address

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """Return when clients can connect; raise the error if the broker cannot start."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """The first half of `start`: several that need each other are launched before one is waited for."""
        if self._thread is not None:
            raise RuntimeError("this broker runs already")
        config = BrokerConfig(self._settings)
        self._launched = threading.Event()
        self._started = threading.Event()
        self._killed = False
        self._thread = threading.Thread(target=self._run, args=(config,), name="penstock-broker", daemon=True)
        self._thread.start()

    def wait_ready(self, timeout: float | None = None) -> None:
        """The other half of `start`. TimeoutError if it takes longer; it may be ready later."""
        if not self._started.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            self._join()
        # A broker that restarts keeps its port, so that clients find it.
        listening = self.broker.stages.listening
        self._settings["listeners"] = ",".join(map(_address, listening.all_listeners))

    def stop(self) -> None:
        """Flush, close and end the thread; raise the first error on the way. A second call does nothing."""
        if self._thread is not None:
            self._launched.wait()
            with suppress(RuntimeError):  # It has ended by itself, and its loop is closed.
                self._loop.call_soon_threadsafe(self._end.set)
            self._join()

    def kill(self) -> None:
        """End at once without a controlled shutdown, like `kill -9`; written data stays, even in memory."""
        self._killed = True
        self.stop()

    def restart(self) -> None:
        """Stop in good order and start again with the same data (even in memory) at the same address."""
        self.stop()
        self.start()

    def _join(self) -> None:
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, config: BrokerConfig) -> None:
        try:
            with asyncio.Runner(loop_factory=self._new_loop) as runner:
                runner.run(self._serve(config))
        except BaseException as e:  # noqa: BLE001 - raised again in the thread that waits for it
            self._error = e
        finally:
            self._launched.set()
            self._started.set()

    async def _serve(self, config: BrokerConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        world = system_world(config)
        if self._files is not None and self._mount is None:
            world = world._replace(files=self._files)
        self._files = world.files
        self.broker = await self._open_broker(config, world)
        self._launched.set()
        if not await start_unless(self._end, self.broker):
            return
        self._started.set()
        await self._end.wait()
        await (self.broker.abort() if self._killed else self.broker.stop())

    # Configs that differ between the brokers of a cluster.

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return new_event_loop()

    async def _open_broker(self, config: BrokerConfig, world: World) -> Broker:
        if self._mount is None:
            return await Broker.open(config, world)
        # Imported here: it needs the library of object stores.
        from penstock.backup.mounting import open_mount

        return await Broker.open(config, world, mount=await open_mount(config, *self._mount))


def _address(listener: Listener) -> str:
    """A listener as configs name it, with the port that it got."""
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{listener.name}://{host}:{listener.port}"


@contextmanager
def broker(
    *,
    data: str | os.PathLike[str] | None = None,
    port: int = 0,
    config: Mapping[str, object] | None = None,
    secure: bool = False,
    mount: str | os.PathLike[str] | None = None,
    at: datetime | None = None,
) -> Iterator[BrokerThread]:
    """A running broker; `config` takes any broker config under Kafka's names.

    With `secure`, clients need TLS and a password (`BrokerThread.client_config`). With `mount`, the broker
    serves a backup read-only, the newest cut or that `at` a moment: a folder, or an address like s3://….
    """
    settings: dict[str, object] = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    client: dict[str, str] = {}
    if secure:
        security = new_security("127.0.0.1")
        client = security.client
        settings = {"listeners": f"{SECURE_LISTENER}://127.0.0.1:{port}", **security.brokers}
    mounted = None
    if mount is not None:
        if data is not None:
            raise ValueError("a mounted backup has no data directory: leave data out")
        from penstock.backup.mounting import mount_settings

        mounted = (os.fspath(mount), None if at is None else int(at.timestamp() * 1000))
        settings |= mount_settings(mounted[0] if at is None else f"{mounted[0]}@{at.isoformat()}")
    elif data is None:
        settings["penstock.memory"] = "true"
    else:
        settings["log.dirs"] = os.path.abspath(data)
    running = BrokerThread(settings | dict(config or {}), client, mounted)
    running.start()
    try:
        yield running
    finally:
        running.stop()
