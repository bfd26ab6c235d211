"""The broker configs that decide who is trusted: which clients and nodes a broker believes, and how much.

To change one of them needs the rights of a super user (ADR 58). A principal that may only AlterConfigs on the
cluster could otherwise make a broker trust an authority of its own, and join the cluster as a broker.

This is the only list of such keys. A new key of this class belongs here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.model.config.listener_names import LISTENER_PREFIX, listener_name

__all__ = [
    "TRUST_KEYS",
    "TRUST_PREFIXES",
    "changed_names",
    "internal_trust_changes",
    "is_trust_key",
    "trust_changes",
]

#: names of keys, without the part `listener.name.…` that sets them for one listener
TRUST_KEYS: Final = frozenset(
    {
        "ssl.client.auth",
        "ssl.principal.mapping.rules",
        "ssl.endpoint.identification.algorithm",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "connections.max.reauth.ms",
        "connection.failed.authentication.delay.ms",
        "security.inter.broker.protocol",
        "inter.broker.listener.name",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "listener.security.protocol.map",
        "listeners",
        "advertised.listeners",
        "principal.builder.class",
        "authorizer.class.name",
        "allow.everyone.if.no.acl.found",
        "super.users",
        "penstock.internal.tls.mode",
        "penstock.insecure.listeners.allow",
        "penstock.metrics.token",
    }
)
#: each stands for all names that begin with it
TRUST_PREFIXES: Final = (
    "ssl.truststore.",
    "ssl.crl.",
    "delegation.token.",
    "sasl.",
    "penstock.sasl.",
    "penstock.security.",
    "penstock.encryption.",
    "penstock.audit.",
    "penstock.authentication.",
    "penstock.unauthenticated.",
    "penstock.console.",
)


def is_trust_key(name: str) -> bool:
    """Whether a key decides about trust, for all listeners or for one of them.

    A key of TLS without the name of a listener is one: it has an effect on the internal listener, too.
    """
    of_listener = listener_name(name)
    if of_listener is not None:
        name = of_listener.key.name
    elif name.startswith(LISTENER_PREFIX):
        # No listener has this key today. Its last parts decide what it would be.
        parts = name.removeprefix(LISTENER_PREFIX).split(".")
        return any(_is_known(".".join(parts[first:])) for first in range(1, len(parts)))
    elif name.startswith("ssl."):
        return True
    return _is_known(name)


def _is_known(name: str) -> bool:
    return name in TRUST_KEYS or name.startswith(TRUST_PREFIXES)


def _is_of_listener(name: str, listener: str) -> bool:
    """Whether a key is set for one listener, and for this one."""
    return name.startswith(f"{LISTENER_PREFIX}{listener.lower()}.")


def trust_changes(names: Iterable[str], internal: str | None) -> list[str]:
    """The names that only a super user may change: those of trust, and all of the internal listener.

    `internal` is the name of the listener of the nodes, None if there is none.
    """
    return [
        name
        for name in names
        if is_trust_key(name) or (internal is not None and _is_of_listener(name, internal))
    ]


def internal_trust_changes(names: Iterable[str], internal: str) -> list[str]:
    """The names of trust that have an effect on the listener of the nodes."""
    return [
        name for name in names if (_is_of_listener(name, internal) and is_trust_key(name)) or _is_known(name)
    ]


def changed_names(current: Mapping[str, str], values: Mapping[str, str]) -> list[str]:
    """The names whose value differs between two sets of configs, or that only one of them has."""
    return [name for name in {**current, **values} if current.get(name) != values.get(name)]
