"""Audit events at a syslog server: RFC 5424 messages over TLS (RFC 5425), or over TCP on a trusted network.

Syslog has no acknowledgements. The batch in hand is sent again on a new connection, so an event may arrive
twice. Bytes that the system had taken when a connection broke may be lost; the chain then has a gap.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.audit.chain import Head
from penstock.audit.syslog_frames import frame, message

__all__ = ["AuditSyslog"]

_CONNECT_S: Final = 10.0
_SEND_S: Final = 30.0


class AuditSyslog:
    """A connection to a server (`penstock.broker.base.audit_sink.Delivery`)."""

    def __init__(self, host: str, port: int, node_id: int, context: ssl.SSLContext | None) -> None:
        """Without a context, the connection has no TLS."""
        self._address = (host, port)
        self._node_id = node_id
        self._context = context
        self._host = socket.gethostname()
        self._socket: socket.socket | None = None

    def open(self) -> Head | None:
        """The server cannot tell which event it has got last."""
        return None

    def has(self, head: Head) -> bool:
        return False

    def prepare(self) -> Sequence[Mapping[str, Any]]:
        return ()

    def deliver(self, batch: Sequence[tuple[Mapping[str, Any], bytes]]) -> None:
        data = b"".join(frame(message(event, line, self._host, self._node_id)) for event, line in batch)
        try:
            if self._socket is None or _is_closed(self._socket):
                self.close()
                self._socket = self._connected()
            self._socket.settimeout(_SEND_S)
            self._socket.sendall(data)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        connected = socket.create_connection(self._address, _CONNECT_S)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._context is None:
            return connected
        try:
            return self._context.wrap_socket(connected, server_hostname=self._address[0])
        except OSError:
            connected.close()
            raise


def _is_closed(connected: socket.socket) -> bool:
    """Whether the server has closed the connection: a write would still succeed."""
    connected.settimeout(0.0)
    try:
        return connected.recv(1024) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True
