"""DescribeCluster: the brokers that clients can reach, and the controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from penstock.broker.base.context import Context
from penstock.broker.handlers.reachable import CLUSTER_OPERATIONS, reachable_brokers
from penstock.broker.node.addresses import NodeAddresses
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.net.listener import Listener
from penstock.wire.apis.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

__all__ = ["DescribeClusterHandlers"]

_NOT_REQUESTED: Final = -(2**31)
#: types of endpoints
_BROKERS: Final = 1
_CONTROLLERS: Final = 2


class DescribeClusterHandlers:
    """DescribeCluster, for clients and for those that connect to controllers directly."""

    def __init__(
        self,
        image: ClusterImage,
        cluster_id: str,
        node_id: int,
        quorum: QuorumDriver,
        addresses: NodeAddresses,
        internal: Listener | None,
        healing_notes: Callable[[], Iterable[str]],
    ) -> None:
        """`healing_notes` describes what self-healing does."""
        self._image = image
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._quorum = quorum
        self._addresses = addresses
        self._internal = internal
        self._healing_notes = healing_notes

    def describe_cluster(self, context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
        if request.endpoint_type == _CONTROLLERS:
            return self._controllers(context)
        if request.endpoint_type != _BROKERS:
            return DescribeClusterResponse(
                error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message=f"Endpoints of type {request.endpoint_type} are not known",
            )
        return DescribeClusterResponse(
            endpoint_type=_BROKERS,
            cluster_id=self._cluster_id,
            controller_id=_active_controller(self._image, self._quorum.state.leader_id, self._node_id),
            brokers=[
                DescribeClusterBroker(
                    broker_id=node,
                    host=host,
                    port=port,
                    rack=rack,
                    is_fenced=fenced,
                    machine=self._image.brokers[node].machine,
                    epoch=self._image.brokers[node].epoch,
                )
                for node, host, port, rack, fenced in reachable_brokers(self._image, context.listener.name)
                if not fenced or request.include_fenced_brokers
            ],
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_REQUESTED
            ),
            healing_notes="\n".join(self._healing_notes()) if request.include_fenced_brokers else "",
        )

    def _controllers(self, context: Context) -> DescribeClusterResponse:
        """The voters' endpoints, for clients that connect to controllers directly (KIP-919)."""
        if self._internal is None or context.listener is not self._internal:
            return DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                error_message="This listener serves clients; send the request to a controller's listener",
            )
        quorum = self._quorum.state
        return DescribeClusterResponse(
            endpoint_type=_CONTROLLERS,
            cluster_id=self._cluster_id,
            controller_id=quorum.leader_id,
            brokers=[
                DescribeClusterBroker(broker_id=voter.key.id, host=endpoint.host, port=endpoint.port)
                for voter in quorum.voters
                if (endpoint := self._addresses.endpoint_of(voter.key.id)) is not None
            ],
        )


def _active_controller(image: ClusterImage, leader_id: int, node_id: int) -> int:
    """The active controller, if it is a broker that clients can reach; else this broker.

    A Metadata response always names this broker: clients send admin requests to it, and any broker forwards
    them. Kafka names a random broker in both responses.
    """
    leader = image.brokers.get(leader_id)
    return node_id if leader is None or leader.fenced else leader.id
