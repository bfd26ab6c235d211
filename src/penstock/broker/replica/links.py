"""The interfaces through which replicas reach the controller, other brokers and coordinators.

The composition root implements them. Replicas need no more of the broker than this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.net.client import Peer
from penstock.wire.api import Api, RequestT, ResponseT

__all__ = ["ClusterLinks", "PartitionCoordinator", "ToController"]


class ToController(Protocol):
    """Sends a request to the active controller; PenstockError if there is no response.

    `on_unanswered` is called before a request that may have been carried out without a response is repeated.
    """

    async def __call__(
        self, api: Api[RequestT, ResponseT], request: RequestT, on_unanswered: Callable[[], None]
    ) -> ResponseT: ...


class PartitionCoordinator(Protocol):
    """A coordinator whose state lives in the partitions of an internal topic."""

    def elected(self, index: int) -> None:
        """This broker leads partition `index` of the topic."""

    def resigned(self, index: int) -> None:
        """This broker does not lead partition `index` of the topic any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLinks:
    """The functions through which replicas reach the rest of the cluster."""

    #: the epoch of this broker's registration; ApiError while the broker is not registered
    broker_epoch: Callable[[], int]
    to_controller: ToController
    #: the connection to a node's internal listener for a purpose; PeerGone if the address is not known
    peer: Callable[[int, str], Peer]
    #: runs work while no metadata record is being applied
    between_changes: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]
    #: returns true if a topic allows unclean leader elections
    unclean_allowed: Callable[[str], bool]
    #: the wall clock for a decision that deletes something; None while it is not trusted
    trusted_ms: Callable[[], int | None]
    #: returns false before the first comparison of this broker's clock with the other brokers' clocks
    clock_compared: Callable[[], bool]
