"""TLS and SASL of one listener: what `Server` needs for its connections.

Imported only where a listener is secured, because OpenSSL costs start time and memory.

While a cluster moves from plaintext to TLS, one port accepts both. The first byte decides: a TLS handshake
begins with 0x16. A plaintext request begins with its length, whose first byte is 0x16 only for requests of
more than 352 MiB.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from penstock.net.application import Application
from penstock.net.connection import Connection
from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.sasl_gate import SaslGate, SaslServer
from penstock.net.tls import SecureProtocol, TlsTransport
from penstock.net.tls_contexts import TlsContexts
from penstock.ports import Buffer
from penstock.security.principal import ANONYMOUS, USER, Principal
from penstock.security.tls_names import NoMappingRule, map_principal, subject_name

__all__ = ["SecureListener", "TransitionalTransport", "certificate_of"]


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
        accepted: Callable[[Connection], None] = lambda connection: None,
        accepts_plaintext: bool = False,
        failure_delay_s: float = 0.0,
        turns: HandshakeTurns | None = None,
    ) -> None:
        """`refused` is called if a certificate has no principal, `failed` if a handshake fails, `accepted` if
        a certificate has proved a principal.

        With `accepts_plaintext`, a connection without TLS is served, too, without authentication.
        A connection whose handshake has failed is closed after `failure_delay_s`. Listeners of one event
        loop share `turns`.
        """
        self._loop = loop
        self.tls = tls
        self.sasl = sasl
        self._refused = refused
        self._failed = failed
        self._accepted = accepted
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
            subject = ""
            try:
                subject = subject_name(certificate)
                name = map_principal(subject, self.tls.settings.mapping_rules)
            except (NoMappingRule, ValueError) as e:
                connection.session = replace(connection.session, claimed=subject)
                self._refused(connection, str(e))
                connection.fail(str(e))
                return
            principal = Principal(USER, name)
        proved = int(certificate is not None)
        connection.session = replace(connection.session, principal=principal, authentications=proved)
        connection.authenticated(connection.application)
        if proved:
            self._accepted(connection)


def certificate_of(connection: Connection) -> bytes | None:
    """The certificate of an open connection's peer in DER; None without TLS, and if it sent none."""
    found: bytes | None = (
        None if connection.closed else getattr(connection._transport, "peer_certificate", None)
    )
    return found


_HANDSHAKE: Final = 0x16


class TransitionalTransport(TlsTransport):
    """A server's connection that is TLS or plaintext, as its peer begins it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: Callable[[], ssl.SSLContext],
        application: SecureProtocol,
        *,
        accepted: Callable[[], None],
        failure_delay_s: float = 0.0,
        turns: HandshakeTurns | None = None,
    ) -> None:
        """`accepted` is called once the peer has begun without TLS."""
        super().__init__(loop, context, application, failure_delay_s=failure_delay_s, turns=turns)
        self._accepted = accepted
        self._is_plain = False

    def buffer_updated(self, nbytes: int) -> None:
        if not self._heard and not self._lost and self.get_buffer(-1)[0] != _HANDSHAKE:
            self._is_plain = self.is_open = True
            self._accepted()
        super().buffer_updated(nbytes)

    def _read(self) -> None:
        if not self._is_plain:
            super()._read()
            return
        if self._reading:
            return
        self._reading = True
        try:
            while self._incoming.pending and self.is_open and not self._paused:
                view = self._application.get_buffer(-1)
                data = self._incoming.read(len(view))
                view[: len(data)] = data
                self._application.buffer_updated(len(data))
        finally:
            self._reading = False

    @property
    def peer_certificate(self) -> bytes | None:
        return None if self._is_plain else super().peer_certificate

    def write(self, data: Buffer) -> None:
        if not self._is_plain:
            super().write(data)
        elif self.is_open and self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        if not self._is_plain:
            super().close()
            return
        self.is_open = False
        if self._transport is not None:
            self._transport.close()
