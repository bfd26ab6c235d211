"""The names that HTTP clients may use for a server of ours.

Why: a web page can let a name of its own resolve to 127.0.0.1 or to an address of an internal network (DNS
rebinding). A browser then takes our responses for those of the page. Its requests have that name in `Host`,
so a server that knows its own names refuses them. An address in `Host` is no danger: it is not resolved.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address

__all__ = ["host_name", "is_local_host", "is_own_host"]


def host_name(host: str) -> str:
    """The name of a Host header without its port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_local_host(host: str) -> bool:
    """Whether a Host header names this machine from itself: localhost, or an address of loopback."""
    name = host_name(host)
    if name in ("", "localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_own_host(host: str, names: Collection[str]) -> bool:
    """Whether a Host header has an address, `localhost`, or one of `names`, which are in lower case."""
    name = host_name(host)
    if name in ("", "localhost") or name in names:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
