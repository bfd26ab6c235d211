"""The interfaces through which partitions and replicas reach the controller, other brokers and coordinators.

The composition root implements them. They need no more of the broker than this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.broker.replica.partition import Partition
from penstock.net.client import Peer
from penstock.ports import Clock
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.producers import ProducerState
from penstock.wire.api import Api, RequestT, ResponseT

__all__ = [
    "ArchivedState",
    "ClusterLinks",
    "PartitionCoordinator",
    "PartitionUsers",
    "ReadArchivedState",
    "ToController",
]


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


class PartitionUsers(Protocol):
    """The parts of a broker that are built on its partitions, and that the partitions call."""

    def hosted(self, partition: Partition) -> None:
        """A partition was opened, and has no role yet."""

    def heartbeat_due(self) -> None:
        """A replica was marked as unclean: the controller has to know."""

    def metadata_doubt(self) -> str | None:
        """Why the metadata is no proof that partitions may be deleted; None if it is one."""


class ArchivedState(NamedTuple):
    """What a log needs to go on at `offset`, if it has no records before."""

    offset: int
    epochs: LeaderEpochs
    producers: list[ProducerState]


class ReadArchivedState(Protocol):
    """Reads the state of a partition at the first end of an archived segment at or behind `local_start`.

    The archive has all records from `log_start` to there. ArchiveError, ArchiveUnproven or OSError if not.
    """

    async def __call__(self, partition: Partition, log_start: int, local_start: int) -> ArchivedState: ...


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
    #: a clock that stands still while this process does not run
    awake_clock: Clock
    #: reads the archive of tiered storage; None without one
    archived_state: ReadArchivedState | None = None
