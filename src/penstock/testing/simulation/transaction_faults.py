"""Directed faults of transactions: each leads into a race that one rule of transactions decides.

They act on a transaction coordinator or on the leader of a partition that transactions write to, and wait
for the moment between two steps of a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from penstock.broker.coordinators.transaction_coordinator import TransactionCoordinator
from penstock.broker.replica.partition import Partition
from penstock.model.errors import PenstockError
from penstock.model.ids import TRANSACTIONS_TOPIC
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import (
    ClusterRoles,
    StateNotReached,
    cluster_roles,
    newest_image,
    replica_on,
)
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.transaction_workers import TransactionalWorker
from penstock.transactions.shard import TransactionFilter
from penstock.transactions.states import PREPARED
from penstock.wire.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

__all__ = ["LEDGER", "TRANSACTION_FAULTS"]

LEDGER: Final = "ledger"
_DirectedFault: TypeAlias = Callable[[SimCluster], Awaitable[None]]
_GLANCE_S: Final = 0.0002
_PATIENCE_S: Final = 5.0
#: longer than the timeout of any transaction
_TIMEOUT_S: Final = (4.6, 6.0)
_DECIDED: Final = TransactionFilter(PREPARED, (), -1, lambda name: True)


async def prepare_unreplicated(cluster: SimCluster) -> None:
    """A coordinator decides a transaction, and is killed before another replica has the decision."""
    roles = await _roles(cluster, TRANSACTIONS_TOPIC)
    for node in roles.followers:
        cluster.loop.network.cut(node.name, roles.leader.name)
    await _until(lambda: _has_undecided(roles.leader, roles))
    await _pause(cluster, 0.01, 0.15)
    _pause_producers(cluster)
    roles.leader.kill()
    cluster.loop.network.heal()
    await _pause(cluster, *_TIMEOUT_S)


async def prepare_on_one(cluster: SimCluster) -> None:
    """A decision is in the log of the next coordinator, which is killed before the third replica has it."""
    roles = await _roles(cluster, TRANSACTIONS_TOPIC)
    network, leader = cluster.loop.network, roles.leader
    heir, other = roles.followers
    network.cut(other.name, leader.name)
    await _until(lambda: _has_undecided(leader, roles) and _end(heir, roles) == _end(leader, roles))
    network.cut(other.name, heir.name)
    _pause_producers(cluster)
    leader.kill()
    await _until(lambda: _leader_id(cluster, roles) not in (leader.id, -1))
    await _pause(cluster, 0.02, 0.3)
    leader.boot()
    await _pause(cluster, 0.05, 0.3)
    heir.kill()
    network.heal()
    await _pause(cluster, *_TIMEOUT_S)


async def marker_unreplicated(cluster: SimCluster) -> None:
    """The leader of a partition is killed when it has a marker that no other replica has."""
    roles = await _roles(cluster, LEDGER)
    await _until(lambda: _first_open(roles.leader, roles) is not None)
    for node in roles.followers:
        cluster.loop.network.cut(node.name, roles.leader.name)
    await _until(lambda: _has_lone_marker(roles.leader, roles))
    await _pause(cluster, 0.0, 0.05)
    roles.leader.kill()
    cluster.loop.network.heal()
    await _pause(cluster, 0.5, 1.5)


async def late_markers(cluster: SimCluster) -> None:
    """Markers of transaction.version 2 arrive a second time, when the next transaction may be open.

    Before version 2, such a marker ends the next transaction (KIP-890).
    """
    await _roles(cluster, TRANSACTIONS_TOPIC)
    for node in cluster.nodes:
        if node.broker is not None:
            _repeat_markers(cluster, node.broker.transactions)
    await _pause(cluster, 3.0, 5.0)


def _repeat_markers(cluster: SimCluster, coordinator: TransactionCoordinator) -> None:
    sender = coordinator.markers
    send = sender.send

    async def repeat(broker_id: int, request: WriteTxnMarkersRequest) -> None:
        await asyncio.sleep(cluster.rng.uniform(0.01, 0.4))
        with suppress(PenstockError):
            await send(broker_id, request)

    async def send_twice(broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        markers = [marker for marker in request.markers if marker.transaction_version >= 2]
        if markers:
            asyncio.get_running_loop().create_task(repeat(broker_id, WriteTxnMarkersRequest(markers=markers)))
        return await send(broker_id, request)

    sender.send = send_twice


def _pause_producers(cluster: SimCluster) -> None:
    """Hold the transactional producers until the end of the fault: their transactions time out."""
    for client, worker in cluster.workers:
        if isinstance(worker, TransactionalWorker):
            client.process.pause()


TRANSACTION_FAULTS: Final[dict[str, _DirectedFault]] = {
    fault.__name__: fault
    for fault in (
        prepare_unreplicated,
        prepare_on_one,
        marker_unreplicated,
        late_markers,
    )
}


async def _roles(cluster: SimCluster, topic: str) -> ClusterRoles:
    """Of a partition of `topic`, when all is well and transactions have run for a moment."""
    await _pause(cluster, 0.8, 2.0)
    await _until(lambda: any(roles.partition.topic == topic for roles in cluster_roles(cluster.nodes)))
    found = [roles for roles in cluster_roles(cluster.nodes) if roles.partition.topic == topic]
    chosen = cluster.rng.choice(found)
    cluster.note("plot", f"{chosen.leader.name} leads {chosen.partition}")
    return chosen


async def _pause(cluster: SimCluster, low_s: float, high_s: float) -> None:
    await asyncio.sleep(cluster.rng.uniform(low_s, high_s))


async def _until(condition: Callable[[], bool]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_S
    while not condition():
        if loop.time() > deadline:
            raise StateNotReached
        await asyncio.sleep(_GLANCE_S)


def _leader_id(cluster: SimCluster, roles: ClusterRoles) -> int:
    topic = newest_image(cluster.nodes).topics.get(roles.partition.topic)
    return -1 if topic is None else topic.partitions[roles.partition.partition].leader


def _replica(node: Node, roles: ClusterRoles) -> Partition | None:
    return replica_on(node, roles.partition)


def _end(node: Node, roles: ClusterRoles) -> int:
    replica = _replica(node, roles)
    return -1 if replica is None else replica.log.end_offset


def _has_undecided(node: Node, roles: ClusterRoles) -> bool:
    """Returns true if the coordinator has appended a decision that is not committed."""
    replica = _replica(node, roles)
    if node.broker is None or replica is None or replica.log.high_watermark >= replica.log.end_offset:
        return False
    shard = node.broker.transactions.runtime.shard(roles.partition.partition)
    return shard is not None and bool(shard.list(_DECIDED))


def _first_open(node: Node, roles: ClusterRoles) -> int | None:
    """The first offset of an open transaction whose first record is committed."""
    replica = _replica(node, roles)
    first = None if replica is None else next(iter(replica.log.producers.ongoing), None)
    return first if first is not None and replica and first < replica.log.high_watermark else None


def _has_lone_marker(node: Node, roles: ClusterRoles) -> bool:
    replica = _replica(node, roles)
    if replica is None:
        return False
    log = replica.log
    return log.end_offset > log.high_watermark and not log.producers.ongoing
