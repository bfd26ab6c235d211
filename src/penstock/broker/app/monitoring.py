"""Composes the monitoring port out of a broker's parts. Imported only by a broker that has the port."""

from __future__ import annotations

from typing import Final

from penstock.broker.app.parts import BrokerParts
from penstock.broker.monitoring.monitor import LISTENER, Monitor, PortAddress
from penstock.broker.monitoring.sources import Sources
from penstock.model.config.keys import as_integer
from penstock.model.config.monitoring_keys import MetricsAddress
from penstock.net.listener import Listener
from penstock.wire.apis.list_offsets import LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse

__all__ = ["new_monitor"]

#: how long another leader may take to list its offsets
_PATIENCE_S: Final = 5.0
_TOKEN_BYTES: Final = 16


def new_monitor(parts: BrokerParts, address: MetricsAddress) -> Monitor:
    """The monitoring port at `address`; InvalidConfig if its TLS configs are incomplete."""
    config = parts.config
    listener = Listener(LISTENER, address.host, 0, security_protocol="SSL" if address.tls else "PLAINTEXT")
    parts.securities.secure(listener)
    token = config["penstock.metrics.token"]
    if token is None and address.optional and config.is_secured:
        # The port is open by default. Without a token, a secured cluster shows its health alone.
        token = parts.rng.token(_TOKEN_BYTES).hex()

    async def list_offsets(broker: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return await parts.node.peers.get(broker, "metrics").send(LIST_OFFSETS, request, _PATIENCE_S)

    listeners = [*parts.listeners, *([] if parts.internal is None else [parts.internal.listener])]
    return Monitor(
        _sources(parts),
        list_offsets,
        PortAddress(address.host, address.port_beside(listeners[0].port), address.optional),
        token=None if token is None else str(token),
        connections_max=as_integer(config["penstock.metrics.connections.max"]),
        wrap=None if listener.security is None else listener.security.wrap,
    )


def _sources(parts: BrokerParts) -> Sources:
    servers = [parts.server, *([] if parts.internal is None else [parts.internal.server])]
    return Sources(
        node_id=parts.node_id,
        started_s=parts.clock.now_ms() / 1000,
        is_broker=parts.config.is_broker,
        clock=parts.clock,
        workers=parts.workers,
        metrics=parts.metrics,
        audit=parts.audit,
        image=parts.image,
        node=parts.node,
        partitions=parts.partitions,
        servers=servers,
        securities=parts.securities,
        groups=parts.groups.runtime,
        transactions=parts.transactions,
        shares=parts.shares,
        client_telemetry=parts.client_telemetry,
        registered=lambda: _is_registered(parts),
        fenced=lambda: _is_fenced(parts),
    )


def _is_registered(parts: BrokerParts) -> bool:
    """Whether the image has the registration of this process."""
    known = parts.image.brokers.get(parts.node_id)
    return known is not None and (parts.lifecycle is None or parts.lifecycle.epoch == known.epoch)


def _is_fenced(parts: BrokerParts) -> bool:
    known = parts.image.brokers.get(parts.node_id)
    return known is None or known.fenced or (parts.lifecycle is not None and parts.lifecycle.fenced)
