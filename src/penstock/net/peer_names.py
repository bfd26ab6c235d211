"""The address of the other end of a connection."""

from __future__ import annotations

import asyncio

from penstock.security.principal import canonical_address

__all__ = ["peer_of"]


def peer_of(transport: asyncio.BaseTransport) -> tuple[str, str]:
    """The address of the peer, without and with its port."""
    name = transport.get_extra_info("peername")
    if not name:
        return "", "?"
    address = canonical_address(name[0])
    return address, f"{address}:{name[1]}"
