"""One broker of a cluster in a test: a thread with an event loop. All brokers share one time and network.

A thread and a loop of its own make a broker as independent as a process is. A broker on hold is like a
process under SIGSTOP: the kernel accepts connections and bytes, the broker does not read them, and when it
goes on, time has passed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from penstock.broker.app.broker import Broker
from penstock.groups.shard import GroupShard
from penstock.model.config import BrokerConfig
from penstock.ports import World
from penstock.testing.brokers import BrokerThread
from penstock.testing.links import Gate, Link, Links, stop_listening
from penstock.testing.shared_time import SessionClock, SharedTime

__all__ = ["NodeThread"]

T = TypeVar("T")


class _NodeLoop(asyncio.SelectorEventLoop):
    """An event loop that goes by the cluster's time, and reaches other brokers over the cluster's links."""

    def __init__(self, node_id: int, shared_time: SharedTime, links: Links) -> None:
        # Before super().__init__(), which reads the time.
        self._shared_time = shared_time
        super().__init__()
        self._node_id = node_id
        self._links = links
        self._gates: dict[Gate, None] = {}
        #: attempts to connect over links that are cut
        self._attempts: list[asyncio.Future[None]] = []

    def time(self) -> float:
        return self._shared_time.monotonic()

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **options: Any
    ) -> tuple[asyncio.BaseTransport, Any]:
        link = self._links.between(self._node_id, port)
        if link is None:
            return await super().create_connection(protocol_factory, host, port, **options)
        while self._links.is_cut(link):
            attempt = self.create_future()
            self._attempts.append(attempt)
            await attempt
        return await super().create_connection(lambda: self._gated(protocol_factory(), link), host, port)

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        return cast("asyncio.Server", _Listening(await super().create_server(*args, **options)))

    def _gated(self, protocol: asyncio.BaseProtocol, link: Link) -> asyncio.BaseProtocol:
        if not isinstance(protocol, asyncio.BufferedProtocol):
            # A short connection that only checks whether the broker listens.
            return protocol
        return Gate(protocol, lambda: self._links.is_cut(link), self._gates)

    def links_changed(self) -> None:
        for gate in list(self._gates):
            gate.update()
        attempts, self._attempts = self._attempts, []
        for attempt in attempts:
            if not attempt.done():
                attempt.set_result(None)

    async def drop_connections(self) -> None:
        """Close the connections that cut links kept open."""
        for gate in list(self._gates):
            gate.drop()
        # Their sockets are closed in the loop's next turn.
        await asyncio.sleep(0)


class _Listening:
    """A server that may be closed while it accepts a connection."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.sockets = server.sockets
        self.start_serving = server.start_serving

    def close(self) -> None:
        stop_listening(self._server)


class NodeThread(BrokerThread):
    """A broker that is one of several."""

    def __init__(self, settings: Mapping[str, object], shared_time: SharedTime, links: Links) -> None:
        super().__init__(settings)
        self.id = int(self._settings["node.id"])
        self._shared_time = shared_time
        self._links = links
        #: set while it is held: setting it lets the broker go on
        self._go_on: threading.Event | None = None

    @property
    def is_awake(self) -> bool:
        """Whether it runs and is not held."""
        return self.is_running and self._go_on is None

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Have the broker's own thread call `function`; one that is held does when it goes on."""
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except Exception as e:  # noqa: BLE001 - raised again in the thread that waits for it
                result.set_exception(e)

        self._loop.call_soon_threadsafe(run)
        return result

    def forget_old_offsets(self) -> Future[None]:
        """Have the coordinators look now for committed offsets whose time is over."""
        return self.call(
            lambda: self.broker.stages.coordinators.groups.runtime.notify_all(GroupShard.expire_offsets)
        )

    def pause(self) -> None:
        """Return when the broker does nothing any more. Pausing twice is harmless."""
        if self._go_on is None:
            go_on = self._go_on = threading.Event()
            held = threading.Event()

            def hold() -> None:
                held.set()
                go_on.wait()

            self._loop.call_soon_threadsafe(hold)
            held.wait()

    def resume(self) -> None:
        if self._go_on is not None:
            self._go_on.set()
            self._go_on = None

    def stop(self) -> None:
        self.resume()
        super().stop()

    def links_changed(self) -> None:
        """Return when the broker's connections have the current state of the links."""
        assert isinstance(self._loop, _NodeLoop)
        done = self.call(self._loop.links_changed)
        if self.is_awake:
            done.result()

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return _NodeLoop(self.id, self._shared_time, self._links)

    async def _open_broker(self, config: BrokerConfig, world: World) -> Broker:
        broker = await Broker.open(config, world._replace(clock=self._shared_time))
        broker.stages.coordinators.groups.runtime.settings.clock = SessionClock(self._shared_time)
        return broker

    async def _serve(self, config: BrokerConfig) -> None:
        try:
            await super()._serve(config)
        finally:
            assert isinstance(self._loop, _NodeLoop)
            await self._loop.drop_connections()
