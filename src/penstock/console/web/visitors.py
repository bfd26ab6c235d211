"""The address of the browser behind a request, also behind proxies.

`X-Forwarded-For` is a list to which each proxy adds the address that it has seen, so only the entries that
trusted proxies have added are true: the first one from the right that is no trusted proxy is the browser.
From any other peer the header is ignored. Pure: headers in, an address out.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from penstock.security.principal import canonical_address

__all__ = ["Network", "network_of", "parse_networks", "scheme_of", "visitor_of"]

Network: TypeAlias = IPv4Network | IPv6Network
_VISITOR_BITS = 64


def parse_networks(texts: Sequence[str]) -> list[Network]:
    """Networks of addresses and CIDR ranges; ValueError names the text that is none."""
    return [ip_network(text.strip(), strict=False) for text in texts]


def visitor_of(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """The address of the browser. `forwarded` are the values of all X-Forwarded-For headers in order."""
    hops = [hop.strip() for value in forwarded for hop in value.split(",")]
    found = canonical_address(peer)
    while hops and is_in(found, trusted):
        hop = _address(hops.pop())
        if hop is None:
            # A proxy that hides the address, or text that no proxy has written.
            break
        found = hop
    return found


def scheme_of(peer: str, scheme: str, forwarded: str | None, trusted: Sequence[Network]) -> str:
    """The scheme that the browser uses: a trusted proxy may have ended TLS."""
    if forwarded is None or not is_in(canonical_address(peer), trusted):
        return scheme
    stated = forwarded.rpartition(",")[2].strip().lower()
    return stated if stated in ("http", "https") else scheme


def network_of(address: str) -> str:
    """What limits count: an IPv4 address, or the network of 64 bits that one IPv6 host has to itself."""
    found = _address(address)
    if found is None or ":" not in found:
        return found or address
    return str(IPv6Network((IPv6Address(found).packed, _VISITOR_BITS), strict=False))


def is_in(address: str, networks: Sequence[Network]) -> bool:
    try:
        parsed: IPv4Address | IPv6Address = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)


def _address(hop: str) -> str | None:
    """The address of an entry, without the port that some proxies add."""
    text = hop
    if hop.startswith("["):
        text = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        text = hop.partition(":")[0]
    try:
        return canonical_address(str(ip_address(text.partition("%")[0])))
    except ValueError:
        return None
