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
from typing import Final

from penstock.model.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
)
from penstock.records.batch import NO_SEQUENCE, TRANSACTIONAL_BIT
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
from penstock.storage.producer_state import (
    SEQUENCE_MASK,
    AppendOrigin,
    CompletedTransaction,
    PastBatch,
    ProducerState,
    check,
    check_epoch,
)
from penstock.storage.sequence_gaps import ANY_SEQUENCE, SequenceGap

__all__ = ["AppendOrigin", "CompletedTransaction", "PastBatch", "ProducerState", "ProducerStates"]

BATCHES_KEPT: Final = 5
#: markers have a higher epoch than the records from this transaction version on (KIP-890)
_MARKERS_BUMP_FROM: Final = 2
_EPOCH_MAX: Final = 0x7FFF


class ProducerStates:
    """The producers of one log."""

    __slots__ = (
        "_unreplicated",
        "_view",
        "end_offset",
        "first_unstable",
        "guards",
        "had_transactions",
        "ongoing",
        "snapshot_offset",
        "snapshot_refused",
        "states",
        "viewed_by",
    )

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        #: by producer id: the transactions that are being verified
        self.guards: dict[int, VerificationGuard] = {}
        self.ongoing: dict[int, int] = {}
        #: first offset -> marker's offset, of transactions whose marker is not below the high watermark yet
        self._unreplicated: dict[int, int] = {}
        #: the lowest offset that a reader of committed records must not pass, None if there is none
        self.first_unstable: int | None = None
        #: true once a transaction was open
        self.had_transactions = False
        #: this state reflects the log up to here
        self.end_offset = 0
        #: the end of what came from a snapshot, which does not have the markers above the high watermark
        self.snapshot_offset = 0
        #: true if a snapshot did not fit the log: a later one has to replace it
        self.snapshot_refused = False
        #: the reader of the view that is in use; None if there is none
        self.viewed_by: object | None = None
        #: the number of views so far
        self._view = 0

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

        `guard` is the one that the batch was verified with. SequenceGap also for a producer that is not known
        and does not start with 0: the log may append the batch nevertheless.
        """
        state = self.states.get(header[PRODUCER_ID])
        if state is None:
            if marker is None and header[ATTRIBUTES] & TRANSACTIONAL_BIT:
                self._check_guard(None, header, origin, guard)
            if header[BASE_SEQUENCE] > 0 and origin is AppendOrigin.CLIENT:
                # The producer is new, or its state has expired.
                raise SequenceGap(
                    header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE], ANY_SEQUENCE
                )
            return None
        if (
            state.batches
            and header[BASE_SEQUENCE] == (state.batches[-1].last_sequence + 1) & SEQUENCE_MASK
            and header[PRODUCER_EPOCH] == state.epoch
            and header[ATTRIBUTES] & TRANSACTIONAL_BIT == state.open_bit
        ):
            # The next batch of a producer, or of its open transaction: nearly all of them, so the quick way.
            # A marker has no sequence.
            return None
        if (
            marker is None
            and header[ATTRIBUTES] & TRANSACTIONAL_BIT
            and not state.is_within(header[PRODUCER_EPOCH])
        ):
            if origin is AppendOrigin.CLIENT:
                # A retry comes first: the append that it repeats has removed the guard.
                duplicate = state.retried(header)
                if duplicate is not None:
                    return duplicate
            check_epoch(state, header[PRODUCER_EPOCH])
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
            raise SequenceGap(producer_id, header[PRODUCER_EPOCH], sequence, 0)
        if sequence > held.lowest_sequence:
            raise SequenceGap(producer_id, header[PRODUCER_EPOCH], sequence, held.lowest_sequence)

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, adds_partitions: bool, now_ms: int
    ) -> VerificationGuard | None:
        """The guard for a transactional batch; None if its transaction is open, and was verified before."""
        state = self.states.get(producer_id)
        if state is not None:
            check_epoch(state, epoch)
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
            state.view = self._view
        elif self.viewed_by is not None and state.view < self._view:
            state = self.states[producer_id] = state.copy()
            state.view = self._view
        epoch = header[PRODUCER_EPOCH]
        if epoch != state.epoch:
            state.enter_epoch(epoch)
        timestamp = state.last_timestamp = header[MAX_TIMESTAMP]
        if marker is not None:
            self._remove_guard(producer_id, epoch, marker)
            return self._end(state, base_offset, marker)
        delta = header[LAST_OFFSET_DELTA]
        last_sequence = (
            (header[BASE_SEQUENCE] + delta) & SEQUENCE_MASK if header[BASE_SEQUENCE] >= 0 else NO_SEQUENCE
        )
        batches = state.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(PastBatch(last_sequence, base_offset + delta, delta, timestamp))
        if header[ATTRIBUTES] & TRANSACTIONAL_BIT:
            if self.guards:
                self._remove_guard(producer_id, epoch, marker)
            if state.transaction_start is None:
                state.open_transaction(base_offset)
                self.had_transactions = True
                self.ongoing[base_offset] = producer_id
                if self.first_unstable is None:
                    self.first_unstable = base_offset
        return None

    def view(self, reader: object) -> list[ProducerState]:
        """The producers as they are now. The objects stay so while `viewed_by` is `reader`.

        Why: to copy, or to encode, many producers takes too long for one step of the event loop.
        """
        assert self.viewed_by is None, "another view is in use"
        self.viewed_by = reader
        self._view += 1
        return list(self.states.values())

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
        state.end_transaction()
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

    def forget_before(self, offset: int, *, without_batches: bool) -> None:
        """Forget producers without an open transaction whose last batch is below `offset`.

        `without_batches` also forgets those of which no batch is remembered.
        """
        gone = [
            producer_id
            for producer_id, state in self.states.items()
            if state.transaction_start is None
            and (state.batches[-1].last_offset < offset if state.batches else without_batches)
        ]
        for producer_id in gone:
            del self.states[producer_id]

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
        self.end_offset = self.snapshot_offset = end_offset
        self.had_transactions = bool(self.ongoing) or self.has_markers
        self._find_first_unstable()

    @property
    def has_markers(self) -> bool:
        """Returns true if a transaction of a known producer has ended."""
        return any(state.coordinator_epoch >= 0 for state in self.states.values())

    def hold_back(self, earlier: ProducerStates, high_watermark: int) -> None:
        """Take over the transactions of `earlier` whose markers are not below `high_watermark`."""
        self._unreplicated |= earlier._unreplicated
        self._find_first_unstable()
        self.replicated_to(high_watermark)
