"""The listener that nodes use among themselves: a server and handlers of its own, beside the clients'."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.fetch.repeated_follower import SteadyFollower
from penstock.broker.request.dispatch import Dispatcher
from penstock.model.config import BrokerConfig
from penstock.model.config.listeners import Endpoint
from penstock.net.connection import Answer, Connection
from penstock.net.deferred import Deferred
from penstock.net.listener import Listener
from penstock.net.server import Limits, Server
from penstock.wire.apis.fetch import FETCH

__all__ = ["InternalDispatcher", "InternalListener", "limits_of", "listener_at"]

log = get_logger("internal")
_STEADY: Final = (FETCH.key, FETCH.max_version)


class InternalDispatcher(Dispatcher):
    """A dispatcher that knows what followers ask again and again."""

    def serve(self, connection: Connection, frame: memoryview) -> Answer:
        steady = connection.memo
        if not isinstance(steady, SteadyFollower):
            return super().serve(connection, frame)
        started = perf_counter_ns()
        try:
            taken = steady.takes(frame)
        except Exception as e:
            raise self._bug(steady.context, e) from e
        if taken is None:
            return super().serve(connection, frame)
        correlation_id, response = taken
        if not isinstance(response, Deferred):
            response, message = Deferred(), response
            response.resolve(message)
        return self._later(self._routes[_STEADY], steady.context, correlation_id, response, started)


class InternalListener:
    """Serves the other nodes, and operators that address a controller, from `serve` to `stop`."""

    def __init__(self, endpoint: Endpoint, limits: Limits) -> None:
        self.listener = listener_at(endpoint)
        self._server = Server(limits, log.warning)

    async def bind(self) -> None:
        await self._server.bind([self.listener])

    async def serve(self, dispatcher: Dispatcher) -> None:
        await self._server.serve(dispatcher)

    async def stop(self) -> None:
        await self._server.stop()


def listener_at(endpoint: Endpoint) -> Listener:
    return Listener(
        endpoint.name,
        endpoint.host,
        endpoint.port,
        endpoint.advertised_host,
        endpoint.advertised_port,
        endpoint.protocol,
    )


def limits_of(config: BrokerConfig) -> Limits:
    return Limits(
        max_request_bytes=config.socket_request_max_bytes,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_by_ip=config.max_connections_by_ip,
        max_connections_per_s=config.max_connection_creation_rate,
        max_idle_s=config.connections_max_idle_ms / 1000,
        memory_bytes=config.request_memory_bytes,
        memory_bytes_per_ip=config.request_memory_bytes_per_ip,
        frame_timeout_s=config.penstock_request_read_timeout_ms / 1000,
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
    )
