"""The monitoring port of one broker: composes its pages, its sampling and its HTTP server.

The modules of the pages are imported with the first request, in a worker thread: brokers have the port by
default, and many are never scraped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.monitoring.documents import ALIVE, LIVENESS, Document
from penstock.broker.monitoring.group_lag import GroupLag, ListOffsets
from penstock.broker.monitoring.health_facts import HealthFacts
from penstock.broker.monitoring.http_server import HttpServer, Policy
from penstock.broker.monitoring.loop_watch import LoopWatch
from penstock.broker.monitoring.sources import Sources, take_snapshot
from penstock.model.config.listeners import is_loopback
from penstock.observability.http import Request

if TYPE_CHECKING:
    from penstock.broker.monitoring.pages import Pages

__all__ = ["LISTENER", "Monitor", "PortAddress"]

log = get_logger("monitoring")
#: the name of the port in `listener.name.metrics.ssl.*`
LISTENER: Final = "METRICS"
#: samples of the event loop between two measurements of the free space
_SPACE_TICKS: Final = 20
_PAGES: Final = "penstock.broker.monitoring.pages"


class PortAddress(NamedTuple):
    """The address to bind. With `any_port`, a port that is taken is replaced by any free one."""

    host: str
    port: int
    any_port: bool = False


class Monitor:
    """Serves metrics and health from `start` to `stop`."""

    def __init__(
        self,
        sources: Sources,
        facts: HealthFacts,
        list_offsets: ListOffsets,
        address: PortAddress,
        *,
        token: str | None,
        connections_max: int,
        wrap: Callable[[Any], Any] | None,
    ) -> None:
        """`wrap` puts TLS between a socket and a connection; None without TLS."""
        self._address = address
        self._sources = sources
        self.facts = facts
        self.watch = LoopWatch(self._sample)
        facts.loop_lag_s = lambda: self.watch.worst_s
        self.lags = GroupLag(sources, list_offsets)
        self._pages: Pages | None = None
        self._ticks = 0
        self._measuring: asyncio.Task[None] | None = None
        policy = Policy(connections_max=connections_max, token=token, local_only=is_loopback(address.host))
        self.server = HttpServer(self._get, policy, wrap)
        self.is_secure = wrap is not None
        self.port = 0

    async def start(self) -> None:
        """Bind the port: `/healthz` answers from here on, while the broker may still wait for others."""
        self.port = await self._bind()
        self.facts.sample()
        self.watch.start()
        self.lags.start()
        scheme = "https" if self.is_secure else "http"
        log.info("monitoring_started", address=f"{scheme}://{self._address.host}:{self.port}")

    async def _bind(self) -> int:
        host, port, any_port = self._address
        try:
            return await self.server.start(host, port)
        except OSError:
            if not any_port:
                raise
            return await self.server.start(host, 0)

    def _sample(self) -> None:
        self.facts.sample()
        self._ticks += 1
        if self._ticks % _SPACE_TICKS == 0 and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.get_running_loop().create_task(self._measure())

    async def _measure(self) -> None:
        """Measure the free space in a worker thread, which a disk may hold up."""
        self.facts.space = (await take_snapshot(self._sources)).space

    async def _get(self, request: Request) -> Document:
        if request.path == LIVENESS:
            return ALIVE
        if self._pages is None:
            module = await self._sources.workers.in_thread(import_module, _PAGES)
            self._pages = self._pages or module.Pages(self._sources, self.facts, self.watch, self.lags)
        return await self._pages.get(request)

    async def stop(self) -> None:
        self.watch.stop()
        if self._measuring is not None:
            self._measuring.cancel()
        await self.lags.stop()
        await self.server.stop()
        if self._pages is not None:
            self._pages.release()
