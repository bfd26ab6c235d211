"""Users, passwords and logins of brokers with SASL."""

from __future__ import annotations

import socket
from typing import Any

from penstock.testing import BrokerThread
from penstock.wire.api import Api
from penstock.wire.conversation import Conversation
from penstock.wire.messages import encode_request
from penstock.wire.schema import Struct

PASSWORD = "correct horse"
_USERS = f'user_node="{PASSWORD}" user_bob="{PASSWORD}"'
JAAS = f'x.LoginModule required username="node" password="{PASSWORD}" {_USERS};'


def ports(running: BrokerThread) -> dict[str, int]:
    """The ports of the listeners by name."""
    internal = running.broker.stages.listening.internal
    found = [*running.broker.stages.listening.listeners, *([internal.listener] if internal else [])]
    return {listener.name: listener.port for listener in found}


def authenticate(connected: socket.socket, conversation: Conversation) -> None:
    while not conversation.is_ready:
        connected.sendall(b"".join(conversation.handshake()))  # type: ignore[arg-type]
        conversation.received(connected.recv_into(conversation.get_buffer()))


GOOD = f"\0bob\0{PASSWORD}".encode()


def encoded(api: Api[Any, Any], version: int, request: Struct) -> bytes:
    return b"".join(map(bytes, encode_request(api, version, 1, "c", request)))  # type: ignore[arg-type]
