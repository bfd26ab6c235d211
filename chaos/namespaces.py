"""The network among brokers where root allows it: a namespace for each, all of them on one bridge.

A cut is a wrong hardware address in the sender's table of neighbours: its packets reach no host, without an
error. TCP retransmits them, gives up, or continues when the cut is healed, by its own timers.

The bridge is connected to this machine only. If the process is killed before `close`, the namespaces stay:
`ip netns list` shows them, with names that begin with `chaos-`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from typing import Final

from chaos.network import Place

__all__ = ["Namespaces", "NamespacesRefused", "are_allowed"]

_CLIENT_PORT: Final = 9092
_INTERNAL_PORT: Final = 19092
_NOBODY: Final = "02:00:00:00:00:00"
#: of this machine on the bridge
_OURS: Final = 254


class NamespacesRefused(Exception):
    """They take root, and a kernel and an `ip` that know of them."""


class Namespaces:
    """One for each node, named after this process."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = list(nodes)
        self._run = os.getpid()
        self._bridge = f"chaos{self._run}"
        self._cut: set[tuple[int, int]] = set()

    def start(self) -> None:
        """NamespacesRefused where they cannot be made; nothing is left then."""
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("address", "add", f"{self._address(_OURS)}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for node in self._nodes:
                self._add(node)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NamespacesRefused(getattr(error, "stderr", None) or str(error)) from error

    def close(self) -> None:
        """Take everything away that is there."""
        for node in self._nodes:
            _try_ip("link", "delete", self._link(node))
            _try_ip("netns", "delete", self._name(node))
        _try_ip("link", "delete", self._bridge)

    def place(self, node: int) -> Place:
        host = self._address(node)
        within = ("ip", "netns", "exec", self._name(node))
        return Place(host, _CLIENT_PORT, _INTERNAL_PORT, f"{host}:{_INTERNAL_PORT}", within)

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        for source, target in ways:
            self._neighbour(source, "replace", target, "lladdr", _NOBODY, "nud", "permanent")
            self._cut.add((source, target))

    def heal(self) -> None:
        for source, target in self._cut:
            self._neighbour(source, "delete", target)
        self._cut.clear()

    def _add(self, node: int) -> None:
        name, link = self._name(node), self._link(node)
        _ip("netns", "add", name)
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", link, "master", self._bridge, "up")
        _ip("-n", name, "address", "add", f"{self._address(node)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")

    def _neighbour(self, node: int, change: str, other: int, *how: str) -> None:
        _ip("-n", self._name(node), "neighbour", change, self._address(other), *how, "dev", "eth0")

    def _name(self, node: int) -> str:
        return f"chaos-{self._run}-{node}"

    def _link(self, node: int) -> str:
        return f"ch{self._run}-{node}"

    def _address(self, node: int) -> str:
        """Of a network that two runs at once do not share."""
        return f"10.213.{self._run % 250}.{node}"


def are_allowed() -> bool:
    """Whether a namespace can be made here, which is tried."""
    trial = Namespaces([1])
    try:
        trial.start()
    except NamespacesRefused:
        return False
    trial.close()
    return True


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _try_ip(*arguments: str) -> None:
    """As `_ip`, where there may be nothing to do."""
    try:
        subprocess.run(["ip", *arguments], check=False, capture_output=True)
    except FileNotFoundError:
        return
