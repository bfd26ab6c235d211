"""The names of broker configs for one listener.

`listener.name.<listener>.<key>` sets a key for one listener, `listener.name.<listener>.<mechanism>.<key>` for
one SASL mechanism of it. Both listener and mechanism are in lower case, as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from penstock.model.config.keys import ConfigKey
from penstock.model.config.network_keys import NETWORK_KEYS
from penstock.model.config.security_keys import SECURITY_KEYS
from penstock.model.errors import InvalidConfig

__all__ = [
    "LISTENER_PREFIX",
    "ListenerName",
    "check_listener_names",
    "listener_name",
    "nearest_listener_name",
]

LISTENER_PREFIX: Final = "listener.name."
#: The syntax of a mechanism in lower case (RFC 4422). `security.mechanism_checks` knows which ones exist.
_MECHANISM: Final = re.compile(r"[a-z0-9_-]{1,20}")
#: keys that cannot be set for one listener
_OF_ALL_LISTENERS: Final = (
    "penstock.security.strict",
    "penstock.insecure.listeners.allow",
    "penstock.internal.tls.mode",
    "penstock.authentication.timeout.ms",
    "penstock.unauthenticated.connections.max",
    "penstock.unauthenticated.connections.max.per.ip",
)
_OF_CONNECTIONS: Final = ("max.connections", "max.connection.creation.rate")
#: keys that can be set for one listener
_BY_LISTENER: Final = {
    **{key.name: key for key in SECURITY_KEYS if key.name not in _OF_ALL_LISTENERS},
    **{key.name: key for key in NETWORK_KEYS if key.name in _OF_CONNECTIONS},
}


class ListenerName(NamedTuple):
    """The name of a key for one listener, in its parts; `mechanism` is empty if it is for all of them."""

    listener: str
    mechanism: str
    key: ConfigKey


def listener_name(name: str) -> ListenerName | None:
    """The parts of `listener.name.…`; None if the name is not one, or of a key that listeners do not have."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if not listener:
        return None
    if rest in _BY_LISTENER:
        return ListenerName(listener, "", _BY_LISTENER[rest])
    mechanism, _, rest = rest.partition(".")
    if rest in _BY_LISTENER and _MECHANISM.fullmatch(mechanism):
        return ListenerName(listener, mechanism, _BY_LISTENER[rest])
    return None


def nearest_listener_name(name: str) -> str | None:
    """The name of a key for one listener that is nearest to a name that is none; None if none is near."""
    if not name.lower().startswith(LISTENER_PREFIX):
        return None
    from difflib import get_close_matches  # only a mistake pays for the import

    listener, _, rest = name[len(LISTENER_PREFIX) :].lower().partition(".")
    mechanism = rest.partition(".")[0]
    known = [*_BY_LISTENER, *(f"{mechanism}.{key}" for key in _BY_LISTENER)]
    nearest = get_close_matches(rest, known, n=1, cutoff=0.6)
    return f"{LISTENER_PREFIX}{listener}.{nearest[0]}" if nearest and listener else None


def check_listener_names(names: Iterable[str], listeners: Collection[str]) -> None:
    """Refuse keys for a listener that is not one of `listeners`: no listener would have them.

    A common cause are capitals: Kafka, too, looks for the listener's name in lower case.
    """
    known = [listener.lower() for listener in listeners]
    for name in names:
        parts = listener_name(name)
        if parts is None or parts.listener in known:
            continue
        from difflib import get_close_matches  # only a mistake pays for the import

        nearest = get_close_matches(parts.listener.lower(), known, n=1, cutoff=0.6)
        rest = name.removeprefix(f"{LISTENER_PREFIX}{parts.listener}.")
        meant = f"; did you mean {LISTENER_PREFIX}{nearest[0]}.{rest}?" if nearest else ""
        raise InvalidConfig(
            f"{name} is for a listener {parts.listener}, but the listeners are {', '.join(known)}{meant}"
        )
