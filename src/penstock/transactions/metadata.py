"""The state of one transactional id as a value, and its transitions. A transition is one record of the log.

Epochs. With transaction.version 0 and 1 only InitProducerId and fencing raise the epoch, and markers carry
the epoch of the data. With version 2 each Prepare* raises it, and markers carry the raised epoch. If the
epoch is exhausted, the producer gets a new producer id with epoch 0 when the transaction is complete.

Two-phase commit (KIP-939). A producer that keeps an open transaction gets a (producer id, epoch) of its own,
which fences the producer before. The transaction has the old pair until it is complete: markers carry it.

Invariant: clients never get the epoch 32767, so a producer can always be fenced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.model.errors import ApiError, ErrorCode
from penstock.transactions.states import EXPIRABLE, PREVIOUS_STATES, TransactionState

__all__ = [
    "BUMPS_EPOCHS_FROM",
    "LAST_EPOCH",
    "NO_EPOCH",
    "NO_PRODUCER",
    "NO_TIMEOUT_MS",
    "TopicPartition",
    "TransactionMetadata",
    "is_exhausted",
    "new_metadata",
]

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
_NO_TIME: Final = -1
EPOCH_MAX: Final = 32767
#: The timeout of a two-phase transaction, in its record as well: as in Kafka, the largest int32.
NO_TIMEOUT_MS: Final = 2**31 - 1
#: the highest epoch that a client gets
LAST_EPOCH: Final = EPOCH_MAX - 1
#: the first level of transaction.version whose Prepare* raises the epoch
BUMPS_EPOCHS_FROM: Final = 2

#: (topic, partition)
TopicPartition = tuple[str, int]


def is_exhausted(epoch: int) -> bool:
    return epoch >= LAST_EPOCH


class TransactionMetadata(NamedTuple):
    """One transactional id. All fields but `last_producer_epoch` are in its record."""

    producer_id: int
    #: the producer id before the last transition
    previous_producer_id: int
    #: The producer id from Complete* on, if the epoch of `producer_id` is exhausted; that of the client while
    #: `next_producer_epoch` is not -1.
    next_producer_id: int
    producer_epoch: int
    #: the epoch before the last bump, to recognise a retried InitProducerId (KIP-360); -1 after a load
    last_producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int
    #: the transaction.version of the request that caused the transition
    client_version: int
    #: the epoch of the client that has kept the open transaction, -1 if none has
    next_producer_epoch: int = NO_EPOCH

    @property
    def is_two_phase(self) -> bool:
        """An external coordinator decides: a transaction is not aborted by a timeout."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def is_kept(self) -> bool:
        return self.next_producer_epoch != NO_EPOCH

    @property
    def client_pair(self) -> tuple[int, int]:
        """The producer id and epoch whose requests are accepted."""
        if self.is_kept:
            return self.next_producer_id, self.next_producer_epoch
        return self.producer_id, self.producer_epoch

    @property
    def markers_committed(self) -> bool:
        return self.state is TransactionState.PREPARE_COMMIT

    def initialized(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int, new_producer_id: int
    ) -> TransactionMetadata:
        """InitProducerId without an open transaction. `new_producer_id` is -1 if the epoch is not exhausted.

        Raises PRODUCER_FENCED if `expected_epoch` is neither the current epoch nor the one before.
        """
        epoch, last = self.producer_epoch + 1, NO_EPOCH
        producer_id = self.producer_id
        if new_producer_id != NO_PRODUCER:
            producer_id, epoch = new_producer_id, 0
            last = NO_EPOCH if expected_epoch is None else self.producer_epoch
        elif expected_epoch is not None and expected_epoch == self.producer_epoch:
            last = self.producer_epoch
        elif expected_epoch is not None and expected_epoch == self.last_producer_epoch:
            # A retry: another producer's InitProducerId would have reset the last epoch.
            epoch, last = self.producer_epoch, self.last_producer_epoch
        elif expected_epoch is not None:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        return self._to(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=_NO_TIME,
            update_ms=now_ms,
        )

    def kept(self, two_phase: bool, now_ms: int, new_producer_id: int) -> TransactionMetadata:
        """InitProducerId that keeps the open transaction, and fences the producer before.

        `new_producer_id` is -1 if the client's epoch is not exhausted. A timeout is removed, never set: a
        transaction that was promised to wait for its outcome waits.
        """
        producer_id, epoch = self._next_pair(new_producer_id)
        return self._to(
            TransactionState.ONGOING,
            last_producer_epoch=NO_EPOCH,
            timeout_ms=NO_TIMEOUT_MS if two_phase else self.timeout_ms,
            next_producer_id=producer_id,
            next_producer_epoch=epoch,
            update_ms=now_ms,
        )

    def _next_pair(self, new_producer_id: int) -> tuple[int, int]:
        producer_id, epoch = self.client_pair
        return (producer_id, epoch + 1) if new_producer_id == NO_PRODUCER else (new_producer_id, 0)

    def with_partitions(
        self, partitions: Iterable[TopicPartition], now_ms: int, client_version: int
    ) -> TransactionMetadata:
        """Begin a transaction, or add partitions to it."""
        return self._to(
            TransactionState.ONGOING,
            partitions=self.partitions.union(partitions),
            start_ms=now_ms if self.state in EXPIRABLE else self.start_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, committed: bool, version: int, now_ms: int, *, fence: bool = False, new_producer_id: int
    ) -> TransactionMetadata:
        """Decide the transaction. `fence` raises the epoch in versions 0 and 1, too: the coordinator aborts.

        `new_producer_id` is -1 if the epoch is not exhausted, or does not change with this transition.
        """
        epoch, last = self.producer_epoch, self.last_producer_epoch
        if version >= BUMPS_EPOCHS_FROM:
            epoch, last = min(epoch + 1, EPOCH_MAX), self.producer_epoch
        elif fence:
            epoch, last = min(epoch + 1, EPOCH_MAX), NO_EPOCH
        next_epoch, previous = NO_EPOCH, self.producer_id
        if self.is_kept:
            previous, next_epoch = self.client_pair
            last = next_epoch
            if version < BUMPS_EPOCHS_FROM and not fence:
                new_producer_id = previous
            else:
                new_producer_id, next_epoch = self._next_pair(new_producer_id)
        return self._to(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            previous_producer_id=previous,
            producer_epoch=epoch,
            last_producer_epoch=last,
            next_producer_id=new_producer_id,
            next_producer_epoch=next_epoch,
            start_ms=now_ms if self.state in EXPIRABLE else self.start_ms,
            update_ms=now_ms,
            client_version=version,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """All markers are written."""
        producer_id, epoch = self.client_pair
        previous = self.previous_producer_id if self.is_kept else self.producer_id
        rotates = self.client_version >= BUMPS_EPOCHS_FROM and self.next_producer_id != NO_PRODUCER
        if rotates and not self.is_kept:
            producer_id, epoch = self.next_producer_id, 0
        return self._to(
            TransactionState.COMPLETE_COMMIT if self.markers_committed else TransactionState.COMPLETE_ABORT,
            producer_id=producer_id,
            previous_producer_id=previous,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER,
            next_producer_epoch=NO_EPOCH,
            partitions=frozenset(),
            update_ms=now_ms,
        )

    def is_retried_overflow(self, producer_id: int, producer_epoch: int) -> bool:
        """Returns true if a version-2 EndTxn has the last epoch of the producer id before this one."""
        return (
            self.previous_producer_id == producer_id
            and producer_epoch == LAST_EPOCH
            and self.producer_epoch == 0
        )

    def _to(self, state: TransactionState, **changes: object) -> TransactionMetadata:
        assert self.state in PREVIOUS_STATES[state], (self.state, state)
        changed = self._replace(**{"previous_producer_id": self.producer_id, **changes, "state": state})  # type: ignore[arg-type]
        assert 0 <= changed.producer_epoch <= EPOCH_MAX, changed
        return changed


def new_metadata(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """A new transactional id, before its first InitProducerId has raised the epoch to 0."""
    return TransactionMetadata(
        producer_id=producer_id,
        previous_producer_id=NO_PRODUCER,
        next_producer_id=NO_PRODUCER,
        producer_epoch=NO_EPOCH,
        last_producer_epoch=NO_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        start_ms=_NO_TIME,
        update_ms=now_ms,
        client_version=0,
    )
