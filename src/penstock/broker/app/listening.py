"""The first stage of a broker: its addresses, and all that a connection meets before its first request.

Nothing here needs the data directories. The addresses are bound before these are opened: binding fails most
often, and the directories stay unchanged then.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock.broker.app.audit_parts import AuditParts
from penstock.broker.app.upward_port import UpwardPort
from penstock.broker.base.access import Access, access_of
from penstock.broker.base.audit import Audit
from penstock.broker.base.audit_queue import AuditQueue
from penstock.broker.base.descriptors import DESCRIPTORS
from penstock.broker.base.logs import get_logger
from penstock.broker.request.internal_listener import (
    InternalListener,
    failed_logins_of,
    limits_of,
    listener_at,
    windows_of,
)
from penstock.broker.request.listener_security import ListenerSecurities
from penstock.broker.request.metadata_tokens import MetadataTokens
from penstock.broker.request.metadata_users import MetadataUsers
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.config.audit_keys import LOG, TOPIC
from penstock.net.listener import Listener
from penstock.net.server import Server
from penstock.net.turns import Turns
from penstock.ports import World
from penstock.security.principal import Session

__all__ = ["Listening", "compose_listening"]

log = get_logger("broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The addresses of a broker, their security, and the audit of what happens there."""

    server: Server
    listeners: list[Listener]
    #: the listener for other nodes; None if this broker is a cluster of one node
    internal: InternalListener | None
    securities: ListenerSecurities
    audit_parts: AuditParts
    #: audit events on their way to the topic; None if they do not go there
    audit_queue: AuditQueue | None
    audit: Audit
    #: None without an authorizer
    access: Access | None

    @property
    def internal_listener(self) -> Listener | None:
        return None if self.internal is None else self.internal.listener

    @property
    def all_listeners(self) -> list[Listener]:
        """Those of clients, then the internal one."""
        return [*self.listeners, *([] if self.internal is None else [self.internal.listener])]

    @property
    def servers(self) -> list[Server]:
        """The server of clients, then that of other nodes."""
        return [self.server, *([] if self.internal is None else [self.internal.server])]

    def is_node(self, session: Session) -> bool:
        """Whether a session may act as a node. Without an authorizer the internal listener decides."""
        return self.access is None or self.access.is_node(session)

    async def bind(self, bootstrap_port: int) -> None:
        """Take the addresses; OSError if one is in use, InvalidConfig if one cannot be secured."""
        for listener in self.all_listeners:
            self.securities.secure(listener)
        await self.server.bind(self.listeners, bootstrap_port)
        if self.internal is not None:
            await self.internal.bind()

    async def stop(self) -> None:
        """Close the connections and give up the addresses."""
        await self.server.stop()
        if self.internal is not None:
            await self.internal.stop()

    def release(self) -> None:
        """Give up the addresses only."""
        self.server.release()
        if self.internal is not None:
            self.internal.release()


def compose_listening(
    config: BrokerConfig, world: World, image: ClusterImage, upward: UpwardPort
) -> Listening:
    """Compose the stage; InvalidConfig if a setting of an audit sink is missing."""
    turns = Turns() if world.computing is None else Turns(world.computing)
    server = Server(
        limits_of(config),
        log.warning,
        has_room=DESCRIPTORS.has_room,
        windows=windows_of(config),
        failed_logins=failed_logins_of(config),
        turns=turns,
    )
    endpoint = config.internal_endpoint
    internal = None if endpoint is None else InternalListener(endpoint, config, turns)
    audit_parts = AuditParts(config, world)
    goes_to_topic = TOPIC in audit_parts.destinations and config.is_broker
    audit_queue = AuditQueue(config.penstock_audit_queue_events_max) if goes_to_topic else None
    audit = _new_audit(config, world, audit_parts, audit_queue, internal)
    if config.penstock_audit_data_topics and audit_parts.destinations:
        audit.watch_data(
            config.penstock_audit_data_topics, config.penstock_audit_data_window_ms / 1000, image
        )
    secret = config.delegation_token_secret_key
    return Listening(
        server=server,
        listeners=[listener_at(endpoint) for endpoint in config.endpoints],
        internal=internal,
        securities=ListenerSecurities(
            config,
            world,
            users=MetadataUsers(image),
            tokens=MetadataTokens(image, secret.encode()) if secret else None,
            on_success=audit.authenticated,
            on_failure=audit.authentication_failed,
            on_revoked=upward.certificates_revoked,
        ),
        audit_parts=audit_parts,
        audit_queue=audit_queue,
        audit=audit,
        access=access_of(config, image, audit),
    )


def _new_audit(
    config: BrokerConfig,
    world: World,
    parts: AuditParts,
    queue: AuditQueue | None,
    internal: InternalListener | None,
) -> Audit:
    return Audit(
        config.penstock_audit_events_per_second_max if parts.destinations else 0,
        world.clock.monotonic,
        to_log=LOG in parts.destinations,
        queue=queue,
        sinks=parts.sinks,
        blocks=config.penstock_audit_overflow == "block",
        aggregation_s=config.penstock_audit_aggregation_ms / 1000,
        has_sessions=config.penstock_audit_sessions_enable,
        call_later=asyncio.get_running_loop().call_later,
        internal=None if internal is None else internal.listener.name,
        wall_ms=world.clock.now_ms,
    )
