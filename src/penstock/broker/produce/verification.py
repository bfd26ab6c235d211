"""Verifies with transaction coordinators that partitions belong to a transaction, or adds them (KIP-890).

The coordinator of a transactional id may be any broker, this one included. One AddPartitionsToTxn request
per coordinator is in flight. Requests that arrive meanwhile are sent together in the next one.

A coordinator answers a request when it has the results of all transactions in it. A transaction whose
predecessor waits for its markers holds the response back for a while, and the result is then
CONCURRENT_TRANSACTIONS. The producer retries. From then on this transaction is sent in requests apart from
the others, on a connection of its own, until its result is another one.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from penstock.broker.base.logs import get_logger
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

__all__ = ["AddPartitionsTransport", "Lane", "Membership", "NotVerified", "TransactionVerifier"]

log = get_logger("transactions")


class Lane(NamedTuple):
    """A sequence of requests, each of which waits for the response to the one before."""

    coordinator: int
    #: true for transactions that were held back
    is_slow: bool


#: sends a request of version 4 or later to a broker, this one included; raises PenstockError without response
AddPartitionsTransport: TypeAlias = Callable[
    [Lane, AddPartitionsToTxnRequest], Awaitable[AddPartitionsToTxnResponse]
]
#: receives NONE, or the error of the coordinator
Verified: TypeAlias = Callable[[ErrorCode], None]

_NO_BROKER: Final = -1
#: the most transactions that are known to be held back; producers that ended never clear theirs
_SLOW_MAX: Final = 1000


class NotVerified(ApiError):
    """A transactional batch that was refused before its partition saw it: its transaction is not verified."""


class Membership(NamedTuple):
    """A producer's transaction that a partition has to belong to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: true to add the partition (`transaction.version` 2), false to verify that it was added
    adds: bool


class _Queued:
    """The partitions of one transaction that the next request of its lane contains."""

    __slots__ = ("is_slow", "membership", "partitions")

    def __init__(self, membership: Membership, is_slow: bool) -> None:
        self.membership = membership
        self.is_slow = is_slow
        self.partitions: dict[tuple[str, int], list[Verified]] = {}

    def fail(self, code: ErrorCode) -> None:
        for waiting in self.partitions.values():
            for verified in waiting:
                verified(code)


class TransactionVerifier:
    """Queues of partitions to verify, by coordinator."""

    def __init__(self, coordinator_of: Callable[[str], int], send: AddPartitionsTransport) -> None:
        """`coordinator_of` returns the broker that coordinates a transactional id, -1 if there is none."""
        self._coordinator_of = coordinator_of
        #: sends a request; replaced by tests of responses that arrive late
        self.send = send
        self._queues: dict[int, dict[str, _Queued]] = {}
        #: the transactional ids that were held back, the oldest first
        self._slow: dict[str, None] = {}
        self._senders: dict[Lane, asyncio.Task[None]] = {}

    def verify(self, membership: Membership, partition: tuple[str, int], verified: Verified) -> None:
        """Call `verified` with the coordinator's result for `partition`."""
        coordinator = self._coordinator_of(membership.transactional_id)
        if coordinator == _NO_BROKER:
            verified(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        queue = self._queues.setdefault(coordinator, {})
        queued = queue.get(membership.transactional_id)
        if queued is not None and queued.membership != membership:
            # After an overflow of the epoch, the transactional id has another producer id and a low epoch.
            is_same = queued.membership.producer_id == membership.producer_id
            if is_same and queued.membership.producer_epoch > membership.producer_epoch:
                verified(ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            # The producer has gone on to another epoch. The same epoch in another protocol is a retry.
            is_older = is_same and queued.membership.producer_epoch < membership.producer_epoch
            del queue[membership.transactional_id]
            queued.fail(ErrorCode.INVALID_PRODUCER_EPOCH if is_older else ErrorCode.NETWORK_EXCEPTION)
            queued = None
        if queued is None:
            is_slow = membership.transactional_id in self._slow
            queued = queue[membership.transactional_id] = _Queued(membership, is_slow)
        queued.partitions.setdefault(partition, []).append(verified)
        self._start(Lane(coordinator, queued.is_slow))

    def stop(self) -> None:
        for task in list(self._senders.values()):
            task.cancel()

    def _start(self, lane: Lane) -> None:
        if lane not in self._senders:
            self._senders[lane] = asyncio.get_running_loop().create_task(self._run(lane))

    async def _run(self, lane: Lane) -> None:
        """Send the transactions of one lane, request by request, until none is queued."""
        try:
            while transactions := self._take(lane):
                await self._send_all(lane, transactions)
        finally:
            del self._senders[lane]

    def _take(self, lane: Lane) -> list[_Queued]:
        queue = self._queues.get(lane.coordinator, {})
        taken = [queued for queued in queue.values() if queued.is_slow is lane.is_slow]
        if len(taken) == len(queue):
            self._queues.pop(lane.coordinator, None)
        else:
            for queued in taken:
                del queue[queued.membership.transactional_id]
        return taken

    def _note(self, lane: Lane, name: str, is_slow: bool) -> None:
        """Note whether a transaction was held back. What is queued for it meanwhile changes its lane, too."""
        self._slow.pop(name, None)
        if is_slow:
            self._slow[name] = None
            if len(self._slow) > _SLOW_MAX:
                del self._slow[next(iter(self._slow))]
        if is_slow is not lane.is_slow:
            queued = self._queues.get(lane.coordinator, {}).get(name)
            if queued is not None:
                queued.is_slow = is_slow
                self._start(lane._replace(is_slow=is_slow))

    async def _send_all(self, lane: Lane, transactions: list[_Queued]) -> None:
        try:
            response = await self.send(lane, _request(transactions))
        except PenstockError as e:
            log.info("transactions_not_verified", coordinator=lane.coordinator, error=str(e))
            for queued in transactions:
                queued.fail(ErrorCode.NETWORK_EXCEPTION)
            return
        if response.error_code:
            code = ErrorCode(response.error_code)
            if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                # That is between brokers. The client learns that the verification did not complete.
                code = ErrorCode.INVALID_TXN_STATE
            for queued in transactions:
                queued.fail(code)
            return
        codes = {
            (result.transactional_id, topic.name, partition.partition_index): partition.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for queued in transactions:
            name, adds = queued.membership.transactional_id, queued.membership.adds
            results = {
                partition: ErrorCode(codes.get((name, *partition), ErrorCode.UNKNOWN_SERVER_ERROR))
                for partition in queued.partitions
            }
            self._note(lane, name, adds and ErrorCode.CONCURRENT_TRANSACTIONS in results.values())
            for partition, waiting in queued.partitions.items():
                for verified in waiting:
                    verified(results[partition])


def _request(transactions: list[_Queued]) -> AddPartitionsToTxnRequest:
    request = AddPartitionsToTxnRequest()
    for queued in transactions:
        topics: dict[str, list[int]] = {}
        for name, index in queued.partitions:
            topics.setdefault(name, []).append(index)
        membership = queued.membership
        request.transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=membership.transactional_id,
                producer_id=membership.producer_id,
                producer_epoch=membership.producer_epoch,
                verify_only=not membership.adds,
                topics=[AddPartitionsToTxnTopic(name=n, partitions=p) for n, p in topics.items()],
            )
        )
    return request
