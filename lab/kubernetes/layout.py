"""The nodes of the cluster, their zones and their networks. Without I/O.

The control plane is at `GATEWAY`, in a network namespace with a bridge. Each node has a network namespace, a
cable to this bridge, and a range of addresses for its pods, to which every other node has a route.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

__all__ = [
    "API_PORT",
    "API_SERVICE",
    "BRIDGE",
    "GATEWAY",
    "NODES",
    "POD_NETWORK",
    "SERVICES",
    "Node",
    "Words",
    "cable",
    "network_words",
]

Words = tuple[str, ...]

GATEWAY: Final = "10.9.0.1"
BRIDGE: Final = "nodes"
API_PORT: Final = 6443
SERVICES: Final = "10.96.0.0/16"
#: the first address of `SERVICES`, which Kubernetes gives to its own API
API_SERVICE: Final = "10.96.0.1"
POD_NETWORK: Final = "10.244.0.0/16"


class Node(NamedTuple):
    """One node: a kubelet with its own container runtime."""

    number: int
    zone: str

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        return f"10.9.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        """The addresses of its pods."""
        return f"10.244.{self.number}.0/24"


#: Zone a has two nodes, so the pod of a drained node there finds another place beside its volume.
NODES: Final = (Node(1, "zone-a"), Node(2, "zone-b"), Node(3, "zone-c"), Node(4, "zone-a"))


def cable(node: Node) -> str:
    """The end of the node's cable at the bridge: without it, the node is cut off."""
    return f"to-{node.name}"


def network_words(nodes: Sequence[Node]) -> Iterator[Words]:
    """The commands that make the networks, in the namespace of the control plane."""
    yield ("ip", "link", "set", "lo", "up")
    yield ("ip", "link", "add", BRIDGE, "type", "bridge")
    yield ("ip", "address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
    yield ("ip", "link", "set", BRIDGE, "up")
    for node in nodes:
        inside = ("ip", "-n", node.name)
        yield ("ip", "netns", "add", node.name)
        yield ("ip", "link", "add", cable(node), "type", "veth", "peer", "name", "eth0", "netns", node.name)
        yield ("ip", "link", "set", cable(node), "master", BRIDGE, "up")
        yield (*inside, "address", "add", f"{node.address}/24", "dev", "eth0")
        yield (*inside, "link", "set", "eth0", "up")
        yield (*inside, "link", "set", "lo", "up")
        yield (*inside, "route", "add", "default", "via", GATEWAY)
        yield ("ip", "route", "add", node.pods, "via", node.address)
        for other in nodes:
            if other is not node:
                yield (*inside, "route", "add", other.pods, "via", other.address)
