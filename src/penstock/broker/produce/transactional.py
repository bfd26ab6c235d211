"""Transactional batches of produce requests: verification before the first append (KIP-890).

The first batch of a producer's transaction waits, in a copy, until the transaction coordinator has confirmed
or added the partition. Later batches of the same producer and partition wait behind it, so they keep their
order. Batches of other producers do not wait. All other batches of an open transaction are appended at once.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from penstock.broker.base.logs import get_logger
from penstock.broker.produce.verification import Membership, NotVerified, TransactionVerifier
from penstock.broker.replica.commits import check_enough_replicas
from penstock.broker.replica.deferred_appends import Producer, Result, append_at_once, append_later
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.buffers import BufferPool
from penstock.ports import Clock, Workers
from penstock.storage.guards import NO_VERIFICATION, VerificationGuard

__all__ = ["ADDS_PARTITIONS_FROM", "TransactionalAppends", "produce_error"]

log = get_logger("transactions")

#: the first Produce version that adds its partitions to the transaction, and with TRANSACTION_ABORTABLE
ADDS_PARTITIONS_FROM: Final = 12
_ABORTABLE_FROM: Final = 11
#: producer id, producer epoch and base sequence of a batch
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_POSITION: Final = 43
#: A verification may succeed later. Older clients do not retry these errors of a coordinator, and this one
#: does not make them refresh their metadata.
_NOT_VERIFIED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

#: Partition, guard, producer epoch: a batch that comes after a marker has another guard, and another
#: verification.
_Key: TypeAlias = tuple[Partition, VerificationGuard, int]


class _Parked:
    """A copy of a batch that waits for the verification of its transaction."""

    __slots__ = ("acks_all", "batch", "client", "result", "version")

    def __init__(
        self, batch: bytearray, acks_all: bool, version: int, result: Result, client: Producer
    ) -> None:
        self.batch = batch
        self.acks_all = acks_all
        self.version = version
        self.result = result
        self.client = client


class TransactionalAppends:
    """The transactional batches of one broker that wait for their verification."""

    def __init__(
        self,
        verifier: TransactionVerifier,
        workers: Workers,
        memory: BufferPool,
        clock: Clock,
        is_enabled: Callable[[], bool],
    ) -> None:
        """`is_enabled` returns the config transaction.partition.verification.enable."""
        self._verifier = verifier
        self._workers = workers
        self._memory = memory
        self._clock = clock
        self._is_enabled = is_enabled
        self._parked: dict[_Key, list[_Parked]] = {}

    def guard(self, partition: Partition, batch: memoryview, version: int) -> VerificationGuard | None:
        """The guard that `batch` has to be verified with; None if it belongs to an open transaction.

        Raises ApiError for a producer epoch that is fenced.
        """
        producer_id, epoch, sequence = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
        if producer_id < 0:
            return None
        adds = version >= ADDS_PARTITIONS_FROM
        if not adds and not self._is_enabled():
            return NO_VERIFICATION
        try:
            return partition.log.producers.start_verification(
                producer_id, epoch, sequence, adds, self._clock.now_ms()
            )
        except ApiError as e:
            raise NotVerified(e.code, str(e)) from e

    def park(
        self,
        partition: Partition,
        batch: memoryview,
        guard: VerificationGuard,
        transactional_id: str,
        version: int,
        acks_all: bool,
        result: Result,
        client: Producer,
    ) -> None:
        """Append a copy of `batch` once its transaction is verified, and call `result` with the outcome."""
        producer_id, epoch, _ = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
        key = (partition, guard, epoch)
        self._memory.charge(len(batch), client.address)
        parked = _Parked(bytearray(batch), acks_all, version, result, client)
        waiting = self._parked.get(key)
        if waiting is not None:
            waiting.append(parked)
            return
        self._parked[key] = [parked]
        membership = Membership(transactional_id, producer_id, epoch, version >= ADDS_PARTITIONS_FROM)
        self._verifier.verify(
            membership, (partition.topic, partition.index), lambda code: self._verified(key, code)
        )

    def _verified(self, key: _Key, code: ErrorCode) -> None:
        partition, guard, _ = key
        for parked in self._parked.pop(key, ()):
            try:
                self._finish(partition, parked, guard, code)
            except Exception as e:
                log.error("append_failed", partition=partition.name, error=repr(e), exc_info=e)
                parked.result(partition, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The append failed"))
            finally:
                self._memory.release(len(parked.batch), parked.client.address)

    def _finish(
        self, partition: Partition, parked: _Parked, guard: VerificationGuard, code: ErrorCode
    ) -> None:
        if code is not ErrorCode.NONE:
            parked.result(partition, produce_error(code, parked.version))
            return
        batch = memoryview(parked.batch)
        try:
            if parked.acks_all:
                check_enough_replicas(partition)
            appended = append_at_once(partition, batch, guard)
        except ApiError as e:
            parked.result(partition, e)
            return
        if appended is None:
            append_later(self._workers, self._memory, partition, batch, parked.result, parked.client, guard)
        else:
            parked.result(partition, appended)


def produce_error(code: ErrorCode, version: int) -> NotVerified:
    """The error of a produce request whose verification failed with `code`, as in Kafka."""
    adds = version >= ADDS_PARTITIONS_FROM
    if code in _NOT_VERIFIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return NotVerified(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    if code is ErrorCode.PRODUCER_FENCED:
        return NotVerified(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return NotVerified(code, "Partition was not added to the transaction")
    return NotVerified(code)
