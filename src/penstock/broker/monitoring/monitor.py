"""The monitoring port of one broker: composes its pages, its sampling and its HTTP server.

The modules of the pages are imported with the first request, in a worker thread: brokers have the port by
default, and many are never scraped.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.monitoring.documents import ALIVE, LIVENESS, Document
from penstock.broker.monitoring.group_lag import GroupLag, ListOffsets
from penstock.broker.monitoring.health_facts import HealthFacts
from penstock.broker.monitoring.http_server import HttpServer, Policy
from penstock.broker.monitoring.loop_watch import LoopWatch
from penstock.broker.monitoring.sources import Sources
from penstock.model.config.listeners import is_loopback
from penstock.observability.http import Request

if TYPE_CHECKING:
    from penstock.broker.monitoring.pages import Pages

__all__ = ["LISTENER", "Monitor", "PortAddress"]

log = get_logger("monitoring")
#: the name of the port in `listener.name.metrics.ssl.*`
LISTENER: Final = "METRICS"
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
        self.facts = HealthFacts(sources)
        self.watch = LoopWatch(self.facts.sample)
        self.lags = GroupLag(sources, list_offsets)
        self._pages: Pages | None = None
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

    async def _get(self, request: Request) -> Document:
        if request.path == LIVENESS:
            return ALIVE
        if self._pages is None:
            module = await self._sources.workers.in_thread(import_module, _PAGES)
            self._pages = self._pages or module.Pages(self._sources, self.facts, self.watch, self.lags)
        return await self._pages.get(request)

    async def stop(self) -> None:
        self.watch.stop()
        await self.lags.stop()
        await self.server.stop()
        if self._pages is not None:
            self._pages.release()
