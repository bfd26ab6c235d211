"""Directed faults of verification (KIP-890): its response arrives when the transaction has ended.

A producer of transaction.version 1 has one epoch for all its transactions, so that epochs do not decide these
races. The leader of its partition gets the coordinator's response when the guard of the verification is
gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias

from penstock.broker.app.broker import Broker
from penstock.broker.produce.verification import Lane
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.records.record import Record, build_batch
from penstock.storage.guards import VerificationGuard
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.clients import Client, Unanswered
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import ClusterRoles, StateNotReached, cluster_roles, replica_on
from penstock.testing.simulation.fault_steps import until
from penstock.testing.simulation.transaction_events import TransactionalSend
from penstock.testing.simulation.transaction_requests import TransactionalId
from penstock.testing.simulation.transaction_session import MustAbort, Session, SessionOver
from penstock.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

__all__ = ["VERIFICATION_RACES", "retried_after_the_end", "verified_after_the_end"]

_LEDGER: Final = "ledger"
#: less than a client waits for a response
_HOLD_S: Final = 2.5
_TIMEOUT_MS: Final = 8000
_RACERS: Final = 4


class _Racer(Session):
    """A producer that sends batches and does not wait for their acknowledgement.

    `sender` sends them: requests of one connection are answered in their order.
    """

    def __init__(self, client: Client, sender: Client, leader: Partition, number: int) -> None:
        self.name = f"racer-{number}"
        super().__init__(client, None, TransactionalId(self.name, 1, _TIMEOUT_MS))
        self._sender = sender
        self._leader = leader
        self.partition = TopicPartition(leader.topic, leader.index)

    def value(self, text: bytes) -> bytes:
        return b"%s.%s" % (self.name.encode(), text)

    async def begin_with_partition(self) -> None:
        self.begin()
        await self._add([self.partition])
        self._added.add(self.partition)

    def start_sending(self, text: bytes) -> asyncio.Task[_Answer | None]:
        """Send a batch with sequence 0, which counts as unused. Returns None if there is no response."""
        self._client.saw(TransactionalSend(self.transaction, self.partition, (self.value(text),)))
        return self.start_copy(text)

    def start_copy(self, text: bytes) -> asyncio.Task[_Answer | None]:
        """Send a batch that was sent before."""
        batch = build_batch(
            [Record(0, self._client.clock.now_ms(), None, self.value(text))],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            transactional=True,
        )
        loop = asyncio.get_running_loop()
        return self._sender.process.spawn(loop, self._produce_quietly(batch))

    async def _produce_quietly(self, batch: bytes) -> _Answer | None:
        try:
            return await self._produce_once(self._sender, self.partition, batch)
        except Unanswered:
            return None

    @property
    def held(self) -> VerificationGuard | None:
        """The guard of this producer in the partition of the leader."""
        return self._leader.log.producers.guards.get(self._producer_id)


#: error code and offset
_Answer: TypeAlias = tuple[int, int]
_IsDue: TypeAlias = Callable[[VerificationGuard | None, VerificationGuard | None], bool]


class _LateResponses:
    """Holds the response to a verification on one broker."""

    def __init__(self, broker: Broker) -> None:
        verifier = broker.stages.coordinators.verifier
        self._send, verifier.send = verifier.send, self._send_and_hold
        self._racer: _Racer | None = None
        self._is_due: _IsDue = lambda guard, held: True
        #: true while a response is held
        self.is_holding = False

    def hold(self, racer: _Racer, is_due: _IsDue) -> None:
        """Hold the response to the racer's next verification until `is_due` returns true."""
        self._racer, self._is_due = racer, is_due

    async def _send_and_hold(
        self, lane: Lane, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        racer = self._racer
        if racer is None or all(t.transactional_id != racer.name for t in request.transactions):
            return await self._send(lane, request)
        self._racer, guard = None, racer.held
        response = await self._send(lane, request)
        self.is_holding = True
        try:
            await until(lambda: self._is_due(guard, racer.held), _HOLD_S)
        except StateNotReached:
            pass
        finally:
            self.is_holding = False
        return response


async def verified_after_the_end(cluster: SimCluster) -> None:
    """A batch is verified, and its transaction aborted. The next transaction is being verified.

    The first batch must not become part of the next transaction.
    """

    async def race(racer: _Racer, responses: _LateResponses) -> None:
        responses.hold(racer, lambda guard, held: held is not None and held is not guard)
        await racer.begin_with_partition()
        late = racer.start_sending(b"late")
        await until(lambda: responses.is_holding)
        await racer.end(False)
        await racer.begin_with_partition()
        await racer.send(racer.partition, [racer.value(b"next")])
        await racer.end(True)
        await late

    await _run(cluster, race)


async def retried_after_the_end(cluster: SimCluster) -> None:
    """A copy of an acknowledged batch arrives in the next transaction, which ends before it is verified.

    The copy must be answered with the offset of the batch: its sender may still wait for the response.
    """

    async def race(racer: _Racer, responses: _LateResponses) -> None:
        await racer.begin_with_partition()
        answer = await racer.start_sending(b"first")
        if answer is None or answer[0] != ErrorCode.NONE:
            raise SessionOver("not acknowledged")
        offset = answer[1]
        await racer.end(True)
        await racer.begin_with_partition()
        responses.hold(racer, lambda guard, held: held is not guard)
        copy = racer.start_copy(b"first")
        await until(lambda: responses.is_holding)
        await racer.end(True)
        code, found = await copy or (ErrorCode.NONE, offset)
        if code == ErrorCode.INVALID_TXN_STATE or (code == ErrorCode.NONE and found != offset):
            name = ErrorCode(code).name
            raise Violation("retry refused", f"{racer.name} at {offset}: {name}, offset {found}")

    await _run(cluster, race)


_Race: TypeAlias = Callable[[_Racer, _LateResponses], Coroutine[Any, Any, None]]
VERIFICATION_RACES: Final = (verified_after_the_end, retried_after_the_end)


async def _run(cluster: SimCluster, race: _Race) -> None:
    """Run the race with several producers, one after the other."""
    await asyncio.sleep(cluster.rng.uniform(0.8, 2.0))
    await until(lambda: bool(_ledgers(cluster)))
    roles = cluster.rng.choice(_ledgers(cluster))
    cluster.note("plot", f"{roles.leader.name} leads {roles.partition}")
    leader, broker = replica_on(roles.leader, roles.partition), roles.leader.broker
    if leader is None or broker is None:
        raise StateNotReached
    client, sender, responses = cluster.client("racer"), cluster.client("sender"), _LateResponses(broker)
    for number in range(_RACERS):
        racer = _Racer(client, sender, leader, number)
        with suppress(SessionOver, MustAbort, Unanswered, StateNotReached):
            await client.process.spawn(cluster.loop, racer.open())
            await client.process.spawn(cluster.loop, race(racer, responses))


def _ledgers(cluster: SimCluster) -> list[ClusterRoles]:
    return [roles for roles in cluster_roles(cluster.nodes) if roles.partition.topic == _LEDGER]
