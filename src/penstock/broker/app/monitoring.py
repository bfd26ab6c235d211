"""Composes the monitoring port out of a broker's stages. Imported only by a broker that has the port."""

from __future__ import annotations

from typing import Final

from penstock.broker.app.health import BrokerHealth
from penstock.broker.app.stages import Stages
from penstock.broker.monitoring.monitor import LISTENER, Monitor, PortAddress
from penstock.model.config.monitoring_keys import MetricsAddress, metrics_token
from penstock.net.listener import Listener
from penstock.wire.apis.list_offsets import LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse

__all__ = ["new_monitor"]

#: how long another leader may take to list its offsets
_PATIENCE_S: Final = 5.0
_TOKEN_BYTES: Final = 16


def new_monitor(stages: Stages, health: BrokerHealth, address: MetricsAddress) -> Monitor:
    """The monitoring port at `address`; InvalidConfig if its TLS configs are incomplete."""
    config, listening, peer = stages.config, stages.listening, stages.cluster.node.peers.get
    listener = Listener(LISTENER, address.host, 0, security_protocol="SSL" if address.tls else "PLAINTEXT")
    listening.securities.secure(listener)
    given = config.penstock_metrics_token
    token = metrics_token(given, config.is_secured, lambda: stages.world.rng.token(_TOKEN_BYTES).hex())

    async def list_offsets(broker: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return await peer(broker, "metrics").send(LIST_OFFSETS, request, _PATIENCE_S)

    return Monitor(
        health.sources,
        health.facts,
        list_offsets,
        PortAddress(address.host, address.port_beside(listening.all_listeners[0].port), address.optional),
        token=token,
        connections_max=config.penstock_metrics_connections_max,
        wrap=None if listener.security is None else listener.security.wrap,
    )
