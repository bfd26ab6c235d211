"""TLS and SASL of one listener: what `Server` needs for its connections.

Imported only where a listener is secured, because OpenSSL costs start time and memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.net.application import Application
from penstock.net.connection import Connection
from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.sasl_gate import SaslGate, SaslServer
from penstock.net.tls import TlsTransport
from penstock.net.tls_contexts import TlsContexts
from penstock.net.tls_transition import TransitionalTransport
from penstock.security.principal import ANONYMOUS, USER, Principal
from penstock.security.tls_names import NoMappingRule, map_principal, subject_name

__all__ = ["SecureListener"]


class SecureListener:
    """The security of one listener. `tls` and `sasl` are None if its protocol has none."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: TlsContexts | None,
        sasl: SaslServer | None,
        *,
        refused: Callable[[Connection, str], None] = lambda connection, reason: None,
        failed: Callable[[Connection, str], None] = lambda connection, reason: None,
        accepts_plaintext: bool = False,
        failure_delay_s: float = 0.0,
        turns: HandshakeTurns | None = None,
    ) -> None:
        """`refused` is called if a certificate has no principal, `failed` if a handshake fails.

        With `accepts_plaintext`, a connection without TLS is served, too, without authentication.
        A connection whose handshake has failed is closed after `failure_delay_s`. Listeners of one event
        loop share `turns`.
        """
        self._loop = loop
        self.tls = tls
        self.sasl = sasl
        self._refused = refused
        self._failed = failed
        self._accepts_plaintext = accepts_plaintext
        self._failure_delay_s = failure_delay_s
        self._turns = turns

    def wrap(self, connection: Any) -> asyncio.BufferedProtocol:
        if self.tls is None:
            protocol: asyncio.BufferedProtocol = connection
            return protocol
        if self._accepts_plaintext:
            return TransitionalTransport(
                self._loop,
                self.tls.context,
                connection,
                accepted=lambda: connection.authenticated(connection.server_application),
                failure_delay_s=self._failure_delay_s,
                turns=self._turns,
            )
        return TlsTransport(
            self._loop,
            self.tls.context,
            connection,
            failure_delay_s=self._failure_delay_s,
            turns=self._turns,
        )

    def gate(self, connection: Any, application: Any) -> Application[Connection]:
        if self.sasl is None:
            served: Application[Connection] = application
            return served
        connection.max_frame_bytes = min(connection.max_frame_bytes, self.sasl.max_receive_bytes)
        return SaslGate(self.sasl, application)

    def failed(self, connection: Any, reason: str) -> None:
        self._failed(connection, reason)

    def secured(self, connection: Any, channel: Any) -> None:
        """With SASL the principal comes later; the certificate alone decides otherwise."""
        if self.sasl is not None:
            return
        assert self.tls is not None
        certificate = channel.peer_certificate
        principal = ANONYMOUS
        if certificate is not None:
            try:
                name = map_principal(subject_name(certificate), self.tls.settings.mapping_rules)
            except (NoMappingRule, ValueError) as e:
                self._refused(connection, str(e))
                connection.fail(str(e))
                return
            principal = Principal(USER, name)
        connection.session = replace(connection.session, principal=principal)
        connection.authenticated(connection.application)
