"""TLS that also accepts plaintext, on one port, while a cluster moves from plaintext to TLS.

The first byte decides: a TLS handshake begins with 0x16. A plaintext request begins with its length, whose
first byte is 0x16 only for requests of more than 352 MiB.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.tls import SecureProtocol, TlsTransport
from penstock.ports import Buffer

__all__ = ["TransitionalTransport"]

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
