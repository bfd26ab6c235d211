"""The browsers behind a web console, as brokers see them.

A console states the address of a browser in the client id of its connections: `penstock-console/ADDRESS`. Any
client can state any client id, so brokers believe it only of connections from the addresses in
`penstock.console.addresses`; otherwise it is a claim in the audit log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.security.principal import canonical_address

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

__all__ = ["CONSOLE_CLIENT_ID", "ConsoleVisitors"]

CONSOLE_CLIENT_ID: Final = "penstock-console"


class ConsoleVisitors:
    """Finds the browser behind a connection."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """`addresses` are addresses and networks of consoles; none by default."""
        self._networks: list[IPv4Network | IPv6Network] = []
        if addresses:
            from ipaddress import ip_network  # only brokers with a console pay for the import

            self._networks = [ip_network(text.strip(), strict=False) for text in addresses]

    def of(self, address: str, client_id: str | None) -> str:
        """The address of the browser behind a connection from `address`; empty if none is believed."""
        name, slash, stated = (client_id or "").partition("/")
        if not self._networks or name != CONSOLE_CLIENT_ID or not slash:
            return ""
        peer, visitor = _parsed(address), _parsed(stated)
        if peer is None or visitor is None or not any(peer in network for network in self._networks):
            return ""
        return canonical_address(str(visitor))


def _parsed(text: str) -> Any:
    from ipaddress import ip_address

    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None
