"""Builds what serves a broker's ports: the dispatchers of its listeners, and the monitoring port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.broker.app.health import BrokerHealth
from penstock.broker.app.routes import Routes
from penstock.broker.app.stages import Stages
from penstock.broker.base.context import Handler
from penstock.broker.base.metrics import ApiStats
from penstock.broker.base.repeated import Learn
from penstock.broker.request.dispatch import Dispatcher
from penstock.broker.request.large_requests import DECODED_BYTES_MAX
from penstock.broker.request.metered_requests import MeteredRequests
from penstock.broker.request.request_watch import RequestWatch
from penstock.net.client_limit import ClientLimit
from penstock.net.connection import Connection
from penstock.ports import Clock
from penstock.quotas.clients import ClientQuotas
from penstock.security.principal import Session
from penstock.wire.api import Api

if TYPE_CHECKING:
    from penstock.broker.monitoring.monitor import Monitor

__all__ = ["client_dispatcher", "internal_dispatcher", "metered_requests", "monitor_of", "monotonic_ms_of"]


def monitor_of(stages: Stages, health: BrokerHealth, is_process: bool) -> Monitor | None:
    """The monitoring port, if the configs have one."""
    address = stages.config.metrics_address
    if address is None or (address.optional and not is_process):
        return None
    # Imported here: a broker without the port starts faster and is smaller.
    from penstock.broker.app.monitoring import new_monitor

    return new_monitor(stages, health, address)


def monotonic_ms_of(clock: Clock) -> Callable[[], int]:
    """The monotonic clock in milliseconds, which quotas are measured with."""
    return lambda: int(clock.monotonic() * 1000)


def client_dispatcher(stages: Stages, routes: Routes, watch: RequestWatch) -> Dispatcher:
    """The dispatcher of the listeners for clients."""
    metrics = stages.storage.metrics
    return _dispatcher(
        stages, routes.clients, routes.repeated, metrics.api, watch, ClientLimit(DECODED_BYTES_MAX)
    )


def metered_requests(
    stages: Stages,
    dispatcher: Dispatcher,
    quotas: ClientQuotas,
    is_exempt: Callable[[Session], bool] | None = None,
) -> MeteredRequests:
    """The requests of a dispatcher's clients that have a quota."""
    now_ms = monotonic_ms_of(stages.world.clock)
    return MeteredRequests(dispatcher, stages.storage.metrics, quotas, now_ms, is_exempt)


def internal_dispatcher(stages: Stages, routes: Routes, watch: RequestWatch) -> Dispatcher:
    """The dispatcher of the listener for other nodes."""
    # Imported here, because a broker without an internal listener does not need these handlers.
    from penstock.broker.app.internal_routes import internal_handlers, repeated_on_internal_listener

    metrics = stages.storage.metrics
    handlers = internal_handlers(stages, routes)
    return _dispatcher(stages, handlers, repeated_on_internal_listener(stages), metrics.internal_api, watch)


def _dispatcher(
    stages: Stages,
    handlers: Mapping[Api[Any, Any], Handler],
    learn: Mapping[tuple[int, int], Learn],
    stats: Callable[[str], ApiStats],
    watch: RequestWatch,
    large_memory: ClientLimit | None = None,
) -> Dispatcher:
    config, listening = stages.config, stages.listening

    def lost(connection: Connection) -> None:
        stages.cluster.node.controller_loop.connection_lost(connection)
        stages.coordinators.shares.partitions.connection_lost(connection)
        listening.audit.session_closed(connection.session)

    return Dispatcher(
        handlers,
        learn,
        stages.storage.metrics,
        lost,
        stats,
        watch,
        listening.server.turns,
        lambda: config.message_max_bytes,
        large_memory,
    )
