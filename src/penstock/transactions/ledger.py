"""The ledger of a transaction shard: the transactional ids of one partition of `__transaction_state`."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.coordination.outbox import Outbox
from penstock.coordination.timers import Timers
from penstock.model.errors import ApiError, ErrorCode
from penstock.transactions.metadata import NO_PRODUCER, TopicPartition, TransactionMetadata, is_exhausted
from penstock.transactions.records import encode_key, encode_value
from penstock.transactions.settings import Environment
from penstock.transactions.states import PREPARED, TransactionState

__all__ = ["SendMarkers", "TransactionLedger"]

#: more than a batch of one record has beside the id and the partitions of its transaction
_BATCH_OVERHEAD: Final = 256
#: the deadline of a two-phase transaction: later than any time of the timers
_NEVER_MS: Final = 2**63


class SendMarkers(NamedTuple):
    """An effect: write COMMIT or ABORT markers to all partitions of a transaction.

    The outcome is reported by `TransactionShard.markers_written`.
    """

    transactional_id: str
    producer_id: int
    #: of the markers: with transaction.version 2 it is above the epoch of the data
    producer_epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class TransactionLedger:
    """Transactional ids of one partition, and the only way to change them durably.

    A record is applied at once. Replies and effects wait until it is committed (`coordination.ledger`).
    """

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.timers = Timers()
        self.outbox = Outbox()
        self.now_ms = 0
        self.by_id: dict[str, TransactionMetadata] = {}
        #: Deadlines of open transactions, on the clock of the timers: a jump of the wall clock moves none.
        #: Two-phase transactions have `_NEVER_MS`.
        self.deadlines_ms: dict[str, int] = {}
        #: partitions of Prepare* transactions whose markers are not written yet
        self.unmarked: dict[str, set[TopicPartition]] = {}

    def begin(self, now_ms: int, timer_ms: int) -> None:
        self.now_ms = now_ms
        self.timers.now_ms = timer_ms

    def apply(self, transactional_id: str, metadata: TransactionMetadata | None) -> None:
        if metadata is None:
            self.by_id.pop(transactional_id, None)
        else:
            self.by_id[transactional_id] = metadata

    def write(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """Append and apply a transition. Prepare* is followed by its markers."""
        self._write(transactional_id, metadata, *self._encoded(transactional_id, metadata))

    def write_if_it_fits(self, transactional_id: str, metadata: TransactionMetadata) -> bool:
        """As `write`; false if the log would refuse the record, or that of the Prepare* that follows it.

        A large transaction is encoded once: that takes milliseconds.
        """
        key, value = self._encoded(transactional_id, metadata)
        if len(key) + len(value) > self.env.record_bytes_max() - _BATCH_OVERHEAD:
            return False
        self._write(transactional_id, metadata, key, value)
        return True

    def _encoded(self, transactional_id: str, metadata: TransactionMetadata) -> tuple[bytes, bytes]:
        return encode_key(transactional_id), encode_value(metadata, self.env.level())

    def _write(self, transactional_id: str, metadata: TransactionMetadata, key: bytes, value: bytes) -> None:
        self.outbox.records.append((key, value))
        self.apply(transactional_id, metadata)
        if metadata.state is TransactionState.ONGOING:
            if metadata.is_two_phase:
                self.deadlines_ms[transactional_id] = _NEVER_MS
            elif transactional_id not in self.deadlines_ms:
                self.deadlines_ms[transactional_id] = self.timers.now_ms + metadata.timeout_ms
        else:
            self.deadlines_ms.pop(transactional_id, None)
        if metadata.state in PREPARED:
            self.send_markers(transactional_id, metadata)

    def delete(self, transactional_id: str) -> None:
        self.outbox.records.append((encode_key(transactional_id), None))
        self.apply(transactional_id, None)

    def send_markers(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """Send the markers of a Prepare* state once its record is committed."""
        if not metadata.partitions:
            self.write(transactional_id, metadata.completed(self.now_ms))
            return
        self.unmarked[transactional_id] = set(metadata.partitions)
        self.outbox.effects.append(
            SendMarkers(
                transactional_id,
                metadata.producer_id,
                metadata.producer_epoch,
                metadata.markers_committed,
                metadata.partitions,
                metadata.client_version,
            )
        )

    def loaded(self) -> None:
        """Resume the deadlines of open transactions and the markers of decided ones."""
        for transactional_id, metadata in list(self.by_id.items()):
            if metadata.state is TransactionState.ONGOING and metadata.is_two_phase:
                self.deadlines_ms[transactional_id] = _NEVER_MS
            elif metadata.state is TransactionState.ONGOING:
                left_ms = metadata.start_ms + metadata.timeout_ms - self.now_ms
                left_ms = min(max(left_ms, 0), metadata.timeout_ms)
                if not self.env.may_expire():
                    # A clock that is ahead must not abort transactions before their time.
                    left_ms = metadata.timeout_ms
                self.deadlines_ms[transactional_id] = self.timers.now_ms + left_ms
            elif metadata.state in PREPARED:
                self.send_markers(transactional_id, metadata)

    def new_producer_id(self) -> int:
        producer_id = self.env.take_producer_id()
        if producer_id is None:
            # As in Kafka: the client retries.
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids are available yet")
        return producer_id

    def producer_id_after(self, metadata: TransactionMetadata) -> int:
        """A new producer id if the client's epoch is exhausted, otherwise -1."""
        return self.new_producer_id() if is_exhausted(metadata.client_pair[1]) else NO_PRODUCER
