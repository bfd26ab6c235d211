"""The monitoring port of one broker: composes its pages, its sampling and its HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker.base.logs import get_logger
from penstock.broker.monitoring.group_lag import AskOffsets, GroupLag
from penstock.broker.monitoring.health_facts import HealthFacts
from penstock.broker.monitoring.http_server import HttpServer, Policy
from penstock.broker.monitoring.loop_watch import LoopWatch
from penstock.broker.monitoring.pages import Pages
from penstock.broker.monitoring.sources import Sources
from penstock.model.config.listeners import is_loopback

__all__ = ["LISTENER", "Monitor"]

log = get_logger("monitoring")
#: the name of the port in `listener.name.metrics.ssl.*`
LISTENER: Final = "METRICS"


class Monitor:
    """Serves metrics and health from `start` to `stop`."""

    def __init__(
        self,
        sources: Sources,
        ask_offsets: AskOffsets,
        address: tuple[str, int],
        *,
        token: str | None,
        connections_max: int,
        wrap: Callable[[Any], Any] | None,
    ) -> None:
        """`wrap` puts TLS between a socket and a connection; None without TLS."""
        self._host, self._port = address
        self.facts = HealthFacts(sources)
        self.watch = LoopWatch(self.facts.sample)
        self.lags = GroupLag(sources, ask_offsets)
        self.pages = Pages(sources, self.facts, self.watch, self.lags)
        policy = Policy(connections_max=connections_max, token=token, local_only=is_loopback(self._host))
        self.server = HttpServer(self.pages.get, policy, wrap)
        self.is_secure = wrap is not None
        self.port = 0

    async def start(self) -> None:
        """Bind the port: `/healthz` answers from here on, while the broker may still wait for others."""
        self.port = await self.server.start(self._host, self._port)
        self.facts.sample()
        self.watch.start()
        self.lags.start()
        scheme = "https" if self.is_secure else "http"
        log.info("monitoring_started", address=f"{scheme}://{self._host}:{self.port}")

    async def stop(self) -> None:
        self.watch.stop()
        await self.lags.stop()
        await self.server.stop()
        self.pages.release()
