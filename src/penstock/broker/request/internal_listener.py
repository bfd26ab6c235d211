"""The listener that nodes use among themselves: a server and handlers of its own, beside the clients'."""

from __future__ import annotations

from penstock.broker.base.logs import get_logger
from penstock.broker.request.dispatch import Dispatcher
from penstock.broker.request.listener_security import ListenerSecurities
from penstock.model.config import BrokerConfig
from penstock.model.config.keys import INT_MAX
from penstock.model.config.listeners import Endpoint
from penstock.net.limits import Limits
from penstock.net.listener import Listener
from penstock.net.server import Server
from penstock.net.turns import Turns
from penstock.quotas.failures import FailedLogins
from penstock.quotas.rates import Windows

__all__ = ["InternalListener", "failed_logins_of", "limits_of", "listener_at", "windows_of"]

log = get_logger("internal")


class InternalListener:
    """Serves the other nodes, and operators that address a controller, from `serve` to `stop`."""

    def __init__(self, endpoint: Endpoint, config: BrokerConfig, turns: Turns) -> None:
        """`turns` are those of the broker's large requests."""
        self.listener = listener_at(endpoint)
        self.server = Server(
            limits_of(config, internal=True),
            log.warning,
            windows=windows_of(config),
            failed_logins=failed_logins_of(config),
            turns=turns,
        )

    def secure(self, securities: ListenerSecurities) -> None:
        securities.secure(self.listener)

    async def bind(self) -> None:
        await self.server.bind([self.listener])

    async def serve(self, dispatcher: Dispatcher) -> None:
        await self.server.serve(dispatcher)

    async def stop(self) -> None:
        await self.server.stop()

    def release(self) -> None:
        """Give up the address."""
        self.server.release()


def listener_at(endpoint: Endpoint) -> Listener:
    return Listener(
        endpoint.name,
        endpoint.host,
        endpoint.port,
        endpoint.advertised_host,
        endpoint.advertised_port,
        endpoint.protocol,
    )


def windows_of(config: BrokerConfig) -> Windows:
    """The windows of the rates of clients and of new connections."""
    return Windows(config.quota_window_num, 1000 * config.quota_window_size_seconds)


def failed_logins_of(config: BrokerConfig) -> FailedLogins:
    """The limit of failed authentications per address."""
    return FailedLogins(
        config.penstock_authentication_failures_per_ip_max,
        config.penstock_authentication_failures_window_ms,
    )


def limits_of(config: BrokerConfig, *, internal: bool = False) -> Limits:
    """The limits of the clients' listeners, or of the internal one: it has no part in the shared limits."""
    rates = config.by_listener("max.connection.creation.rate")
    if not internal:
        rates[""] = config.max_connection_creation_rate
    return Limits(
        max_request_bytes=config.socket_request_max_bytes,
        max_connections=INT_MAX if internal else config.max_connections,
        max_connections_by_listener=config.by_listener("max.connections"),
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_by_ip=config.max_connections_by_ip,
        rates=rates,
        max_idle_s=config.connections_max_idle_ms / 1000,
        memory_bytes=config.request_memory_bytes,
        memory_bytes_per_ip=config.request_memory_bytes_per_ip,
        frame_timeout_s=config.penstock_request_read_timeout_ms / 1000,
        authentication_timeout_s=config.penstock_authentication_timeout_ms / 1000,
        max_unauthenticated=config.penstock_unauthenticated_connections_max,
        max_unauthenticated_per_ip=config.penstock_unauthenticated_connections_max_per_ip,
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
    )
