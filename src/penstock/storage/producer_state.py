"""One producer of a log: its epoch, its last batches, its open transaction, and the checks against them."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from penstock.model.errors import (
    ApiError,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
)
from penstock.records.batch import NO_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL_BIT
from penstock.records.control import EndTransaction
from penstock.records.header_fields import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    LAST_OFFSET_DELTA,
    PRODUCER_EPOCH,
)
from penstock.storage.sequence_gaps import SequenceGap

__all__ = [
    "SEQUENCE_MASK",
    "AppendOrigin",
    "CompletedTransaction",
    "PastBatch",
    "ProducerState",
    "check",
    "check_epoch",
]

SEQUENCE_MASK: Final = 0x7FFFFFFF
#: a sequence is ahead of another by less than this, or behind it: sequences wrap
_AHEAD_MAX: Final = 1 << 30


class AppendOrigin(Enum):
    """The source of an append, which decides what has to be checked."""

    CLIENT = auto()
    COORDINATOR = auto()
    RAFT = auto()
    REPLICATION = auto()


class PastBatch(NamedTuple):
    """A batch of a producer, as much of it as a retry needs."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction that a marker at `last_offset` has ended in this log."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerState:
    """One producer: its epoch, its last batches, its open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "open_bit",
        "producer_id",
        "transaction_start",
        "view",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        transaction_start: int | None = None,
        batches: list[PastBatch] | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        #: first offset of the open transaction, None if none is open
        self.transaction_start = transaction_start
        #: the transactional bit that the next batch has to have
        self.open_bit = 0 if transaction_start is None else TRANSACTIONAL_BIT
        self.batches: list[PastBatch] = batches or []
        #: the last view of its log's producers when this object was made: it belongs to later views only
        self.view = 0

    def copy(self) -> ProducerState:
        return ProducerState(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.transaction_start,
            list(self.batches),
        )

    def agrees_with(self, other: ProducerState | None) -> bool:
        """Returns true if `other` would check the next batch of this producer in the same way."""
        return other is not None and (
            self.epoch,
            self.coordinator_epoch,
            self.open_bit,
            self.batches[-1:],
        ) == (other.epoch, other.coordinator_epoch, other.open_bit, other.batches[-1:])

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate(self, sequence: int, delta: int) -> PastBatch | None:
        """The remembered batch with exactly these sequences."""
        last_sequence = (sequence + delta) & SEQUENCE_MASK
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.offset_delta == delta:
                return batch
        return None

    def retried(self, header: tuple[int, ...]) -> PastBatch | None:
        """The remembered batch that a batch of the same epoch repeats."""
        if header[PRODUCER_EPOCH] != self.epoch:
            return None
        return self.duplicate(header[BASE_SEQUENCE], header[LAST_OFFSET_DELTA])

    def open_transaction(self, first_offset: int) -> None:
        self.transaction_start = first_offset
        self.open_bit = TRANSACTIONAL_BIT

    def end_transaction(self) -> None:
        self.transaction_start = None
        self.open_bit = 0

    def is_within(self, epoch: int) -> bool:
        """Returns true if a transaction of `epoch` is open."""
        return self.transaction_start is not None and epoch == self.epoch

    def enter_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


def check(
    state: ProducerState, header: tuple[int, ...], origin: AppendOrigin, marker: EndTransaction | None
) -> PastBatch | None:
    """As `ProducerStates.check`, against the state of the batch's own producer."""
    epoch = header[PRODUCER_EPOCH]
    check_epoch(state, epoch)
    if marker is not None:
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {state.coordinator_epoch}",
            )
        return None
    if origin is AppendOrigin.CLIENT:
        duplicate = _check_sequence(state, epoch, header[BASE_SEQUENCE], header[LAST_OFFSET_DELTA])
        if duplicate is not None:
            return duplicate
    if state.transaction_start is not None and not header[ATTRIBUTES] & TRANSACTIONAL_BIT:
        raise InvalidTxnState(
            f"producer {state.producer_id} has an open transaction; this batch is outside of it"
        )
    return None


def check_epoch(state: ProducerState, epoch: int) -> None:
    if epoch < state.epoch:
        raise InvalidProducerEpoch(
            f"producer {state.producer_id} has epoch {state.epoch} here; a batch of epoch {epoch} is too late"
        )


def _check_sequence(state: ProducerState, epoch: int, sequence: int, delta: int) -> PastBatch | None:
    if epoch != state.epoch:
        if sequence != 0 and state.epoch != NO_EPOCH:
            raise SequenceGap(state.producer_id, epoch, sequence, 0)
        return None
    expected = (state.last_sequence + 1) & SEQUENCE_MASK
    if sequence == expected:
        return None
    duplicate = state.duplicate(sequence, delta)
    if duplicate is None:
        if (sequence - expected) & SEQUENCE_MASK < _AHEAD_MAX:
            raise SequenceGap(state.producer_id, epoch, sequence, expected)
        raise OutOfOrderSequence(
            f"producer {state.producer_id} sends sequence {sequence}, {expected} is the next one"
        )
    return duplicate
