"""The parts of a broker that the monitoring port reads, and the values that it fetches from the system."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from penstock.broker.base.audit import Audit
from penstock.broker.base.client_telemetry import ClientTelemetry
from penstock.broker.base.metrics import Metrics
from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.coordinators.share_coordinator import ShareCoordinator
from penstock.broker.coordinators.transaction_coordinator import TransactionCoordinator
from penstock.broker.links.runtime import Links
from penstock.broker.node.cluster_node import ClusterNode
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.broker.request.listener_security import ListenerSecurities
from penstock.broker.shares.dead_letters import DeadLetters
from penstock.broker.shares.delay_topics import DelayTopics
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.groups.shard import GroupShard
from penstock.metadata.image import ClusterImage
from penstock.model.errors import StorageError
from penstock.net.server import Server
from penstock.ports import Clock, Space, Workers

__all__ = ["Snapshot", "Sources", "hosted", "take_snapshot"]

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class ShareSources(Protocol):
    """The parts of a broker that serve share groups."""

    @property
    def coordinator(self) -> ShareCoordinator: ...

    @property
    def partitions(self) -> SharePartitions: ...

    @property
    def dead_letters(self) -> DeadLetters: ...

    @property
    def delays(self) -> DelayTopics: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The parts of a broker that are read."""

    node_id: int
    started_s: float
    is_broker: bool
    clock: Clock
    workers: Workers
    metrics: Metrics
    audit: Audit
    image: ClusterImage
    node: ClusterNode
    partitions: Partitions
    #: for clients, then for nodes
    servers: Sequence[Server]
    securities: ListenerSecurities
    groups: CoordinatorRuntime[GroupShard]
    transactions: TransactionCoordinator
    shares: ShareSources
    client_telemetry: ClientTelemetry
    links: Links
    #: whether the controller has registered this process, and whether it is fenced
    registered: Callable[[], bool]
    fenced: Callable[[], bool]
    #: the free share below which a volume of this capacity is low on space
    free_share_min: Callable[[int], float]


class Snapshot(NamedTuple):
    """Values that a worker thread has read."""

    cpu_s: float
    resident_bytes: int
    open_files: int
    #: by data directory; without those that are offline
    space: dict[str, Space]


async def take_snapshot(sources: Sources) -> Snapshot:
    """Read values that may have to wait for a disk, in a worker thread."""
    return await sources.workers.in_thread(_read, sources.partitions)


def _read(partitions: Partitions) -> Snapshot:
    space: dict[str, Space] = {}
    for directory in partitions.directories:
        try:
            space[directory.path] = directory.space()
        except StorageError:
            continue
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * _PAGE_BYTES
        files = len(os.listdir("/proc/self/fd"))
    except OSError:
        resident = files = 0
    return Snapshot(time.process_time(), resident, files, space)


def hosted(partitions: Partitions, image: ClusterImage) -> Iterator[tuple[str, list[Partition]]]:
    """The topics with replicas here, and these. The metadata may change between two topics."""
    for name in list(image.topics):
        found = [slot for slot in partitions.of_topic(name).values() if isinstance(slot, Partition)]
        if found:
            yield name, found
