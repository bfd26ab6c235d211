"""A broker in a thread of this process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from penstock.broker.broker import Broker
from penstock.broker.server import new_event_loop, system_world
from penstock.model.config import BrokerConfig

__all__ = ["BrokerThread", "broker"]


class BrokerThread:
    """A broker with an event loop and a thread of its own. Use `broker()` unless you restart it yourself."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._started = threading.Event()
        self._stop: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-broker", daemon=True)
        self.broker: Broker

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers`."""
        return self.broker.address

    def start(self) -> None:
        """Return when clients can connect; raise what kept the broker from starting."""
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Flush, close and end the thread; raise what went wrong on the way."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as e:  # noqa: BLE001 - raised again in the thread that waits for it
            self._error = e
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.broker = Broker(self._config, system_world(self._config))
        await self.broker.start()
        self._started.set()
        await self._stop.wait()
        await self.broker.stop()


@contextmanager
def broker(
    *, data: str | os.PathLike[str] | None = None, port: int = 0, config: Mapping[str, str] | None = None
) -> Iterator[BrokerThread]:
    """A running broker; `config` takes any broker config under Kafka's names."""
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    if data is None:
        settings["penstock.memory"] = "true"
    else:
        settings["log.dirs"] = os.fspath(data)
    running = BrokerThread(BrokerConfig(settings | dict(config or {})))
    running.start()
    try:
        yield running
    finally:
        running.stop()
