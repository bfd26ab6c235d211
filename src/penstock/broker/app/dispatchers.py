"""Builds what serves a broker's ports: the dispatchers of its listeners, and the monitoring port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.broker.app.parts import BrokerParts
from penstock.broker.app.routes import Routes
from penstock.broker.app.tracing import Tracing
from penstock.broker.base.context import Handler
from penstock.broker.base.metrics import ApiStats
from penstock.broker.base.repeated import Learn
from penstock.broker.request.dispatch import Dispatcher
from penstock.net.connection import Connection
from penstock.wire.api import Api

if TYPE_CHECKING:
    from penstock.broker.monitoring.monitor import Monitor

__all__ = ["client_dispatcher", "internal_dispatcher", "monitor_of"]


def monitor_of(parts: BrokerParts, is_process: bool) -> Monitor | None:
    """The monitoring port, if the configs have one."""
    address = parts.config.metrics_address
    if address is None or (address.optional and not is_process):
        return None
    # Imported here: a broker without the port starts faster and is smaller.
    from penstock.broker.app.monitoring import new_monitor

    return new_monitor(parts, address)


def client_dispatcher(parts: BrokerParts, routes: Routes, tracing: Tracing) -> Dispatcher:
    """The dispatcher of the listeners for clients."""
    return _dispatcher(parts, routes.clients, routes.repeated, parts.metrics.api, tracing)


def internal_dispatcher(parts: BrokerParts, routes: Routes, tracing: Tracing) -> Dispatcher:
    """The dispatcher of the listener for other nodes."""
    # Imported here, because a broker without an internal listener does not need these handlers.
    from penstock.broker.app.internal_routes import internal_handlers, repeated_on_internal_listener

    return _dispatcher(
        parts,
        internal_handlers(parts, routes),
        repeated_on_internal_listener(parts),
        parts.metrics.internal_api,
        tracing,
    )


def _dispatcher(
    parts: BrokerParts,
    handlers: Mapping[Api[Any, Any], Handler],
    learn: Mapping[tuple[int, int], Learn],
    stats: Callable[[str], ApiStats],
    tracing: Tracing,
) -> Dispatcher:
    def lost(connection: Connection) -> None:
        parts.node.controller_loop.connection_lost(connection)
        parts.shares.partitions.connection_lost(connection)

    return Dispatcher(handlers, learn, parts.metrics, lost, stats, tracing.watch)
