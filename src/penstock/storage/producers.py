"""The producers of a log: sequences, epochs, and open transactions.

A producer may retry: the last five batches of each are remembered, and one that comes again is answered with
the offset it has. Checks (`check`) come before a batch is written and change nothing; `apply` follows the
write, and is also how state is rebuilt from a log. Invariants: `ongoing` maps first offsets, rising, to
producer ids; every offset below `first_unstable` is decided and, if a marker decided it, replicated.

A client's transactional batch outside of an open transaction needs the guard of its verification
(`penstock.storage.guards`). Followers and recovery check neither guards nor epochs: the leader did, and the
log does not have the transaction version of a marker.
"""

from __future__ import annotations

from collections.abc import ItemsView
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
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from penstock.storage.guards import NO_VERIFICATION, VerificationGuard

__all__ = ["AppendOrigin", "CompletedTransaction", "PastBatch", "ProducerState", "ProducerStates"]

BATCHES_KEPT: Final = 5
_SEQUENCE_MASK: Final = 0x7FFFFFFF
#: markers have a higher epoch than the records from this transaction version on (KIP-890)
_MARKERS_BUMP_FROM: Final = 2
_EPOCH_MAX: Final = 0x7FFF


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
        "producer_id",
        "transaction_start",
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
        self.batches: list[PastBatch] = batches or []

    def copy(self) -> ProducerState:
        return ProducerState(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.transaction_start,
            list(self.batches),
        )

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate(self, sequence: int, delta: int) -> PastBatch | None:
        """The remembered batch with exactly these sequences."""
        last_sequence = (sequence + delta) & _SEQUENCE_MASK
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.offset_delta == delta:
                return batch
        return None

    def retried(self, header: tuple[int, ...]) -> PastBatch | None:
        """The remembered batch that a batch of the same epoch repeats."""
        if header[PRODUCER_EPOCH] != self.epoch:
            return None
        return self.duplicate(header[BASE_SEQUENCE], header[LAST_OFFSET_DELTA])

    def is_within(self, epoch: int) -> bool:
        """Returns true if a transaction of `epoch` is open."""
        return self.transaction_start is not None and epoch == self.epoch

    def enter_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerStates:
    """The producers of one log."""

    __slots__ = ("_unreplicated", "end_offset", "first_unstable", "guards", "ongoing", "states")

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        #: by producer id: the transactions that are being verified
        self.guards: dict[int, VerificationGuard] = {}
        self.ongoing: dict[int, int] = {}
        #: first offset -> marker's offset, of transactions whose marker is not below the high watermark yet
        self._unreplicated: dict[int, int] = {}
        #: the lowest offset that a reader of committed records must not pass, None if there is none
        self.first_unstable: int | None = None
        #: this state reflects the log up to here
        self.end_offset = 0

    @property
    def is_empty(self) -> bool:
        """Returns true if no producer is known, nor a transaction."""
        return not (self.states or self.ongoing or self._unreplicated)

    def items(self) -> ItemsView[int, ProducerState]:
        return self.states.items()

    def check(
        self,
        header: tuple[int, ...],
        origin: AppendOrigin,
        marker: EndTransaction | None,
        guard: VerificationGuard | None = None,
    ) -> PastBatch | None:
        """Refuse a batch that its producer's history does not allow; return what it repeats, if it does.

        `guard` is the one that the batch was verified with.
        """
        state = self.states.get(header[PRODUCER_ID])
        transactional = header[ATTRIBUTES] & TRANSACTIONAL_BIT
        if state is None:
            if transactional and marker is None:
                self._check_guard(None, header, origin, guard)
            # Whatever it did is forgotten (or it is new): any sequence is taken, as in Kafka.
            return None
        if (
            state.batches
            and header[BASE_SEQUENCE] == (state.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
            and header[PRODUCER_EPOCH] == state.epoch
            and (state.transaction_start is None) is (not transactional)
            and marker is None
        ):
            # The next batch of a producer, or of its open transaction: nearly all of them, so the quick way.
            return None
        if transactional and marker is None and not state.is_within(header[PRODUCER_EPOCH]):
            if origin is AppendOrigin.CLIENT:
                # A retry comes first: the append that it repeats has removed the guard.
                duplicate = state.retried(header)
                if duplicate is not None:
                    return duplicate
            _check_epoch(state, header[PRODUCER_EPOCH])
            self._check_guard(state, header, origin, guard)
        return check(state, header, origin, marker)

    def _check_guard(
        self,
        state: ProducerState | None,
        header: tuple[int, ...],
        origin: AppendOrigin,
        guard: VerificationGuard | None,
    ) -> None:
        """Refuse a transactional batch outside of an open transaction that was not verified."""
        producer_id = header[PRODUCER_ID]
        held = self.guards.get(producer_id)
        if guard is not NO_VERIFICATION and (guard is None or guard is not held):
            if origin is AppendOrigin.CLIENT or guard is not None:
                raise InvalidTxnState(
                    f"the batch of producer {producer_id} is not part of an open transaction"
                )
            return
        if held is None or origin is not AppendOrigin.CLIENT:
            return
        sequence = header[BASE_SEQUENCE]
        if held.adds_partitions and sequence != 0 and (state is None or not state.batches):
            raise OutOfOrderSequence(
                f"producer {producer_id} starts a transaction with sequence {sequence} instead of 0"
            )
        if sequence > held.lowest_sequence:
            raise OutOfOrderSequence(
                f"producer {producer_id} sends sequence {sequence}, {held.lowest_sequence} comes before it"
            )

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, adds_partitions: bool, now_ms: int
    ) -> VerificationGuard | None:
        """The guard for a transactional batch; None if its transaction is open, and was verified before."""
        state = self.states.get(producer_id)
        if state is not None:
            _check_epoch(state, epoch)
            if state.is_within(epoch):
                return None
        guard = self.guards.get(producer_id)
        if guard is None:
            guard = self.guards[producer_id] = VerificationGuard(epoch, sequence, adds_partitions, now_ms)
        else:
            guard.saw(epoch, sequence)
        return guard

    def check_marker_epoch(self, producer_id: int, epoch: int, transaction_version: int) -> None:
        """Refuse a late marker of `transaction.version` 2: it would end the next transaction.

        Such a marker has a higher epoch than the records that it decides. An equal one is a retry of a marker
        that is in the log already, unless a transaction is open.
        """
        state = self.states.get(producer_id)
        if state is None or transaction_version < _MARKERS_BUMP_FROM or epoch > state.epoch:
            return
        if epoch < state.epoch or (state.transaction_start is not None and epoch != _EPOCH_MAX):
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {state.epoch} here; a marker of epoch {epoch} is too late"
            )

    def apply(
        self, header: tuple[int, ...], base_offset: int, marker: EndTransaction | None
    ) -> CompletedTransaction | None:
        """Note a batch that is in the log at `base_offset`; returns the transaction that it ends."""
        producer_id = header[PRODUCER_ID]
        state = self.states.get(producer_id)
        if state is None:
            state = self.states[producer_id] = ProducerState(producer_id)
        epoch = header[PRODUCER_EPOCH]
        if epoch != state.epoch:
            state.enter_epoch(epoch)
        timestamp = state.last_timestamp = header[MAX_TIMESTAMP]
        if self.guards and header[ATTRIBUTES] & TRANSACTIONAL_BIT:
            self._remove_guard(producer_id, epoch, marker)
        if marker is not None:
            return self._end(state, base_offset, marker)
        delta = header[LAST_OFFSET_DELTA]
        last_sequence = (
            (header[BASE_SEQUENCE] + delta) & _SEQUENCE_MASK if header[BASE_SEQUENCE] >= 0 else NO_SEQUENCE
        )
        batches = state.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(PastBatch(last_sequence, base_offset + delta, delta, timestamp))
        if header[ATTRIBUTES] & TRANSACTIONAL_BIT and state.transaction_start is None:
            state.transaction_start = base_offset
            self.ongoing[base_offset] = producer_id
            if self.first_unstable is None:
                self.first_unstable = base_offset
        return None

    def _remove_guard(self, producer_id: int, epoch: int, marker: EndTransaction | None) -> None:
        guard = self.guards.get(producer_id)
        # With `transaction.version` 2 a marker has the epoch of the next transaction, which may be under
        # verification already.
        is_of_next = guard is not None and guard.adds_partitions and guard.epoch == epoch
        if guard is not None and not (marker is not None and is_of_next):
            del self.guards[producer_id]

    def _end(self, state: ProducerState, offset: int, marker: EndTransaction) -> CompletedTransaction | None:
        state.coordinator_epoch = marker.coordinator_epoch
        first = state.transaction_start
        if first is None:
            # A marker without records moves no offset and needs no index entry.
            return None
        state.transaction_start = None
        del self.ongoing[first]
        self._unreplicated[first] = offset
        return CompletedTransaction(state.producer_id, first, offset, not marker.committed)

    def last_stable_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset once `completed` is replicated."""
        return next(iter(self.ongoing), completed.last_offset + 1)

    def replicated_to(self, high_watermark: int) -> None:
        """Markers below `high_watermark` now count."""
        if self._unreplicated:
            self._unreplicated = {f: m for f, m in self._unreplicated.items() if m >= high_watermark}
        if self.first_unstable is not None:
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        candidates = [*self._unreplicated, next(iter(self.ongoing), None)]
        self.first_unstable = min((offset for offset in candidates if offset is not None), default=None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been silent for `expiration_ms` and have no open transaction."""
        expired = [
            producer_id
            for producer_id, state in self.states.items()
            if state.transaction_start is None and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.states[producer_id]
        if self.guards:
            self.guards = {p: g for p, g in self.guards.items() if now_ms - g.started_ms < expiration_ms}

    def load(self, states: list[ProducerState], end_offset: int) -> None:
        """Start from a snapshot: everything known up to `end_offset`."""
        self.states = {state.producer_id: state for state in states}
        self.ongoing = dict(
            sorted(
                (state.transaction_start, state.producer_id)
                for state in states
                if state.transaction_start is not None
            )
        )
        self._unreplicated = {}
        self.end_offset = end_offset
        self._find_first_unstable()


def check(
    state: ProducerState, header: tuple[int, ...], origin: AppendOrigin, marker: EndTransaction | None
) -> PastBatch | None:
    """As `ProducerStates.check`, against the state of the batch's own producer."""
    epoch = header[PRODUCER_EPOCH]
    _check_epoch(state, epoch)
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


def _check_epoch(state: ProducerState, epoch: int) -> None:
    if epoch < state.epoch:
        raise InvalidProducerEpoch(
            f"producer {state.producer_id} has epoch {state.epoch} here; a batch of epoch {epoch} is too late"
        )


def _check_sequence(state: ProducerState, epoch: int, sequence: int, delta: int) -> PastBatch | None:
    if epoch != state.epoch:
        if sequence != 0 and state.epoch != NO_EPOCH:
            raise OutOfOrderSequence(
                f"producer {state.producer_id} starts epoch {epoch} with sequence {sequence} instead of 0"
            )
        return None
    expected = (state.last_sequence + 1) & _SEQUENCE_MASK
    if sequence == expected:
        return None
    duplicate = state.duplicate(sequence, delta)
    if duplicate is None:
        raise OutOfOrderSequence(
            f"producer {state.producer_id} sends sequence {sequence}, {expected} is the next one"
        )
    return duplicate
