"""The states of SASL on a server's connection, as a table.

    START      ApiVersions (once), then SaslHandshake, or SaslHandshake at once
    HANDSHAKE  only SaslHandshake
    TOKENS     only SaslAuthenticate (after SaslHandshake version 1)
    RAW        tokens without request headers (after SaslHandshake version 0)
    DONE       authenticated; SaslHandshake starts a re-authentication (KIP-368)

An event without an entry is illegal in its state and ends the connection.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["NEXT", "Event", "State"]


class State(Enum):
    START = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    RAW = auto()
    DONE = auto()


class Event(Enum):
    API_VERSIONS = auto()
    #: SaslHandshake version 0
    HANDSHAKE_RAW = auto()
    #: SaslHandshake version 1
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    RAW_TOKEN = auto()
    #: the exchange of the mechanism is complete
    COMPLETE = auto()
    #: any other request
    OTHER = auto()


NEXT: Final[dict[tuple[State, Event], State]] = {
    (State.START, Event.API_VERSIONS): State.HANDSHAKE,
    (State.START, Event.HANDSHAKE_RAW): State.RAW,
    (State.START, Event.HANDSHAKE): State.TOKENS,
    (State.HANDSHAKE, Event.HANDSHAKE_RAW): State.RAW,
    (State.HANDSHAKE, Event.HANDSHAKE): State.TOKENS,
    (State.TOKENS, Event.AUTHENTICATE): State.TOKENS,
    (State.TOKENS, Event.COMPLETE): State.DONE,
    (State.RAW, Event.RAW_TOKEN): State.RAW,
    (State.RAW, Event.COMPLETE): State.DONE,
    (State.DONE, Event.HANDSHAKE): State.TOKENS,
}
