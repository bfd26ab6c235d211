"""The identity behind a connection: principal, and the session in which it acts.

A `Session` is immutable. A connection replaces its session when it authenticates, and again when it
re-authenticates (KIP-368).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.model.errors import InvalidConfig

__all__ = ["ANONYMOUS", "USER", "Principal", "Session", "canonical_address", "parse_principal"]

#: the principal type of users, as in `User:alice`
USER: Final = "User"


class Principal(NamedTuple):
    """A principal. Its text is Kafka's: `TYPE:NAME`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


#: the principal of a connection without authentication
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")


@dataclass(frozen=True, slots=True)
class Session:
    """The authenticated state of a connection.

    `host` is the client's address in canonical form. `expires_at` is a time of the event loop's clock; after
    it, only re-authentication is accepted. None means that the session does not expire.
    """

    principal: Principal = ANONYMOUS
    listener: str = ""
    host: str = ""
    expires_at: float | None = None
    #: the SASL mechanism of the authentication, None for TLS and plaintext
    mechanism: str | None = None
    #: names of groups from an OAuth token
    groups: tuple[str, ...] = ()
    #: what the client called itself when it authenticated by SASL; a claim
    client_id: str = ""
    #: the address of the browser, of a connection of a web console that is believed
    visitor: str = ""
    #: how often the connection has authenticated; from 2 on it has re-authenticated
    authentications: int = 0
    #: the id of the delegation token of the authentication; None without one
    token_id: str | None = None
    #: the name that the client has claimed in an authentication that failed
    claimed: str = ""


def parse_principal(text: str) -> Principal:
    """The principal `TYPE:NAME`; InvalidConfig if the text has no type or no name."""
    kind, _, name = text.strip().partition(":")
    if not kind or not name:
        raise InvalidConfig(f"{text!r} is not a principal: write TYPE:NAME, for example User:alice")
    return Principal(kind, name)


def canonical_address(host: str) -> str:
    """An address in the form that ACLs, limits and quotas compare.

    An IPv4 address mapped into IPv6 becomes IPv4. IPv6 is compressed and loses its scope. Any other text is
    returned as it is.
    """
    if ":" not in host:
        return host
    from ipaddress import IPv6Address, ip_address  # only IPv6 pays for the import

    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
