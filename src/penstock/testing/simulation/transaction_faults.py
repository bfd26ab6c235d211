"""Directed faults of transactions: each leads into a race that one rule of transactions decides.

They act on a transaction coordinator or on the leader of a partition that transactions write to, and wait
for the moment between two steps of a transaction. Those of verification are in `verification_races`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from penstock.broker.coordinators.transaction_coordinator import TransactionCoordinator
from penstock.broker.replica.partition import Partition
from penstock.coordination.partitioning import partition_of
from penstock.model.errors import PenstockError
from penstock.model.ids import TRANSACTIONS_TOPIC, TopicPartition
from penstock.records.record import iter_batches, iter_records
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import (
    ClusterRoles,
    StateNotReached,
    cluster_roles,
    newest_image,
    replica_on,
)
from penstock.testing.simulation.fault_steps import leader_id, pause, until
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.transaction_requests import TransactionalId
from penstock.testing.simulation.transaction_session import MustAbort, Session, SessionOver
from penstock.testing.simulation.transaction_workers import TransactionalWorker
from penstock.testing.simulation.verification_races import VERIFICATION_RACES
from penstock.transactions.records import decode_record
from penstock.transactions.states import TransactionState
from penstock.wire.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

__all__ = ["LEDGER", "TRANSACTION_FAULTS"]

LEDGER: Final = "ledger"
_DirectedFault: TypeAlias = Callable[[SimCluster], Awaitable[None]]
#: longer than the timeout of any transaction
_TIMEOUT_S: Final = (4.6, 6.0)
_READ_BYTES: Final = 1 << 20
#: the timeout of a transaction that a directed fault leaves open
_SHORT_TIMEOUT_MS: Final = 1500
#: Longer than a follower's fetch waits at the leader, and shorter than a replica may lag. A fetch that was
#: waiting when its link was cut would still get the next record.
_FETCH_ENDS_S: Final = (0.6, 0.8)
_Place: TypeAlias = tuple[ClusterRoles, ClusterRoles, ClusterRoles]


class _Producer:
    """A transactional producer of one coordinator, which does each step when the fault says so."""

    def __init__(self, cluster: SimCluster, roles: ClusterRoles) -> None:
        count = len(newest_image(cluster.nodes).topics[TRANSACTIONS_TOPIC].partitions)
        names = (f"directed-{number}" for number in itertools.count())
        name = next(name for name in names if partition_of(name, count) == roles.partition.partition)
        self._loop = cluster.loop
        self._client = cluster.client(name)
        self._session = Session(self._client, None, TransactionalId(name, 2, _SHORT_TIMEOUT_MS))

    async def write(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin a transaction with a record in each partition."""
        try:
            await self._client.process.spawn(self._loop, self._write(partitions))
        except (SessionOver, MustAbort):
            raise StateNotReached from None

    async def _write(self, partitions: Sequence[TopicPartition]) -> None:
        await self._session.open()
        self._session.begin()
        for number, partition in enumerate(partitions):
            await self._session.send(partition, [f"{self._client.name}.{number}".encode()])

    def commit(self) -> None:
        """Request the commit, and do not wait for its outcome."""
        self._client.process.spawn(self._loop, self._commit())

    async def _commit(self) -> None:
        with suppress(SessionOver, MustAbort):
            await self._session.end(True)

    def pause(self) -> None:
        self._client.process.pause()


async def prepare_unreplicated(cluster: SimCluster) -> None:
    """A coordinator decides a transaction, and is killed before another replica has the decision.

    A COMMIT marker that it sends reaches one of the partitions, and is lost in another one, which it leads.
    """
    await pause(cluster, 0.8, 2.0)
    places = [
        (roles, own, other)
        for roles in await _all_roles(cluster, TRANSACTIONS_TOPIC)
        for own in await _all_roles(cluster, LEDGER)
        for other in await _all_roles(cluster, LEDGER)
        if own.leader is roles.leader is not other.leader
    ]
    roles, own, other = _choose(cluster, places)
    producer = _Producer(cluster, roles)
    await producer.write([own.partition, other.partition])
    for node in roles.followers:
        cluster.loop.network.cut(node.name, roles.leader.name)
    await pause(cluster, *_FETCH_ENDS_S)
    producer.commit()
    await until(lambda: _decision(roles.leader, roles) >= max(_end(node, roles) for node in roles.followers))
    await pause(cluster, 0.01, 0.15)
    _pause_producers(cluster)
    producer.pause()
    roles.leader.kill()
    cluster.loop.network.heal()
    await pause(cluster, *_TIMEOUT_S)


async def prepare_on_one(cluster: SimCluster) -> None:
    """A decision is in the log of the next coordinator, which is killed before the third replica has it.

    A COMMIT marker of the next coordinator reaches the third replica, which leads one of the partitions.
    """
    await pause(cluster, 0.8, 2.0)
    places = [
        (roles, lost, kept)
        for roles in await _all_roles(cluster, TRANSACTIONS_TOPIC)
        for lost in await _all_roles(cluster, LEDGER)
        for kept in await _all_roles(cluster, LEDGER)
        if kept.leader is roles.followers[1] is not lost.leader
    ]
    roles, lost, kept = _choose(cluster, places)
    network, leader = cluster.loop.network, roles.leader
    heir, other = roles.followers
    producer = _Producer(cluster, roles)
    await producer.write([lost.partition, kept.partition])
    network.cut(other.name, leader.name)
    await pause(cluster, *_FETCH_ENDS_S)
    producer.commit()
    await until(lambda: _end(other, roles) <= _decision(leader, roles) < _end(heir, roles))
    network.cut(other.name, heir.name)
    _pause_producers(cluster)
    producer.pause()
    leader.kill()
    await until(lambda: leader_id(cluster, roles.partition) == heir.id)
    await pause(cluster, 0.02, 0.3)
    heir.kill()
    # Two of three voters are needed for an election.
    leader.boot()
    network.heal()
    await pause(cluster, *_TIMEOUT_S)


async def marker_unreplicated(cluster: SimCluster) -> None:
    """The leader of a partition is killed when it has a marker that no other replica has."""
    roles = await _roles(cluster, LEDGER)
    await until(lambda: _first_open(roles.leader, roles) is not None)
    for node in roles.followers:
        cluster.loop.network.cut(node.name, roles.leader.name)
    await until(lambda: _has_lone_marker(roles.leader, roles))
    await pause(cluster, 0.0, 0.05)
    roles.leader.kill()
    cluster.loop.network.heal()
    await pause(cluster, 0.5, 1.5)


async def late_markers(cluster: SimCluster) -> None:
    """Markers of transaction.version 2 arrive a second time, when the next transaction may be open.

    Before version 2, such a marker ends the next transaction (KIP-890).
    """
    await _roles(cluster, TRANSACTIONS_TOPIC)
    for node in cluster.nodes:
        if node.broker is not None:
            _repeat_markers(cluster, node.broker.stages.coordinators.transactions)
    await pause(cluster, 3.0, 5.0)


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
        *VERIFICATION_RACES,
    )
}


async def _all_roles(cluster: SimCluster, topic: str) -> list[ClusterRoles]:
    """Of the partitions of `topic`, when all is well."""
    await until(lambda: any(roles.partition.topic == topic for roles in cluster_roles(cluster.nodes)))
    return [roles for roles in cluster_roles(cluster.nodes) if roles.partition.topic == topic]


def _choose(cluster: SimCluster, places: Sequence[_Place]) -> _Place:
    if not places:
        raise StateNotReached
    chosen = cluster.rng.choice(places)
    cluster.note("plot", f"{chosen[0].leader.name} leads {chosen[0].partition}")
    return chosen


async def _roles(cluster: SimCluster, topic: str) -> ClusterRoles:
    """Of a partition of `topic`, when all is well and transactions have run for a moment."""
    await pause(cluster, 0.8, 2.0)
    chosen = cluster.rng.choice(await _all_roles(cluster, topic))
    cluster.note("plot", f"{chosen.leader.name} leads {chosen.partition}")
    return chosen


def _replica(node: Node, roles: ClusterRoles) -> Partition | None:
    return replica_on(node, roles.partition)


def _end(node: Node, roles: ClusterRoles) -> int:
    replica = _replica(node, roles)
    return -1 if replica is None else replica.log.end_offset


def _decision(node: Node, roles: ClusterRoles) -> int:
    """The offset of the last commit that the coordinator has appended and that is not committed; else -1."""
    replica = _replica(node, roles)
    if replica is None or replica.log.high_watermark >= replica.log.end_offset:
        return -1
    log, last = replica.log, -1
    found = log.read(log.high_watermark, _READ_BYTES, upper=log.end_offset)
    data = b"" if found is None else found.read_unverified()
    for start, header in iter_batches(data):
        for record in () if header.is_control else iter_records(data[start : start + header.size]):
            decoded = decode_record(record.key or b"", record.value)
            decision = None if decoded is None else decoded[1]
            if decision is not None and decision.state is TransactionState.PREPARE_COMMIT:
                last = record.offset
    return last


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
