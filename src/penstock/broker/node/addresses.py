"""The addresses of this node and of the other nodes: of their internal listeners.

The address of a node comes from the voters of the quorum, from `controller.quorum.voters`, from its
registration in the image, or from a response that named a leader that none of these has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.net.listener import Listener
from penstock.raft.messages import Endpoint
from penstock.raft.voters import VoterSet
from penstock.wire.apis.endpoints import NodeEndpoint

__all__ = ["NodeAddresses"]


class NodeAddresses:
    """Finds the internal listener of each node of a cluster."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        internal: Listener | None,
        voters: Callable[[], VoterSet],
    ) -> None:
        """`internal` is this node's listener for other nodes, `voters` returns the voters of the quorum."""
        self._config = config
        self._image = image
        self._internal = internal
        self._voters = voters
        #: addresses of leaders that are not voters according to this node's log
        self._learned: dict[int, tuple[str, int]] = {}

    @property
    def own(self) -> tuple[Endpoint, ...]:
        """The endpoint of this node's internal listener, if it has one."""
        internal = self._internal
        if internal is None:
            return ()
        return (Endpoint(internal.name, internal.advertised_host, internal.advertised_port),)

    def learn(self, nodes: Iterable[NodeEndpoint]) -> None:
        for node in nodes:
            self._learned[node.node_id] = (node.host, node.port)

    def endpoint_of(self, node_id: int) -> Endpoint | None:
        """The endpoint of the internal listener of `node_id`, if it is known."""
        if node_id == self._config.node_id:
            return self.own[0] if self.own else None
        address = self.locate(node_id)
        return None if address is None or self._internal is None else Endpoint(self._internal.name, *address)

    def locate(self, node_id: int) -> tuple[str, int] | None:
        """Host and port of the internal listener of `node_id`, if they are known."""
        voter = self._voters().get(node_id)
        if voter is not None and voter.endpoints and voter.endpoints[0].port:
            return voter.endpoints[0].host, voter.endpoints[0].port
        if node_id in self._config.quorum_voters:
            return self._config.quorum_voters[node_id]
        broker = self._image.brokers.get(node_id)
        if broker is not None and self._internal is not None and self._internal.name in broker.endpoints:
            return broker.endpoints[self._internal.name]
        return self._learned.get(node_id)
