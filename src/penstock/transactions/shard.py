"""The transaction coordinator's shard: the transactional ids of one partition of `__transaction_state`.

A method per request. It returns the response or the error codes, or raises the ApiError that becomes the
response. Records, replies and effects are in `outbox`. Later requests see a transition at once, but no reply
and no marker leaves before its record is committed. So Kafka's pending states exist here only as Prepare*.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from itertools import islice
from typing import Final, NamedTuple

from penstock.coordination.ledger_shard import LedgerShard
from penstock.coordination.outbox import ReplyTo
from penstock.coordination.timers import TimerKey
from penstock.model.errors import ApiError, ErrorCode
from penstock.transactions.ending import END_V1, END_V2, Ending
from penstock.transactions.initialization import Initialization, fence, init_producer_id
from penstock.transactions.ledger import TransactionLedger
from penstock.transactions.metadata import (
    BUMPS_EPOCHS_FROM,
    NO_PRODUCER,
    TopicPartition,
    TransactionMetadata,
)
from penstock.transactions.records import decode_record
from penstock.transactions.settings import Environment
from penstock.transactions.states import EXPIRABLE, PREPARED, TransactionState
from penstock.wire.apis.describe_transactions import DescribedTransaction, TopicData
from penstock.wire.apis.end_txn import EndTxnResponse
from penstock.wire.apis.init_producer_id import InitProducerIdResponse
from penstock.wire.apis.list_transactions import ListedTransaction
from penstock.wire.schema import Struct

__all__ = ["Addition", "TransactionFilter", "TransactionShard"]

_ABORT_TIMED_OUT: Final = "abort_timed_out"
_EXPIRE_IDS: Final = "expire_ids"
_WAITING: Final = "waiting"
#: How long a request that adds partitions waits for the markers of the transaction before. Kafka's brokers
#: poll for as long.
WAIT_MS: Final = 100
#: Transactions that are aborted in one turn of the shard, and ids that expire; the next turn follows soon.
#: Many may be due at once, and a broker has many shards, whose checks are due together.
_ABORTED_AT_ONCE: Final = 20
_EXPIRED_AT_ONCE: Final = 100
_SOON_MS: Final = 10
_LISTED_AT_ONCE: Final = 500


class Addition(NamedTuple):
    """Partitions that a producer adds to its transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    #: the transaction.version of the request
    version: int


class TransactionFilter(NamedTuple):
    """The filters of ListTransactions. Empty filters match all."""

    states: Collection[TransactionState | None]
    producer_ids: Collection[int]
    #: the least time in milliseconds for which a transaction is open; negative matches all
    duration_ms: int


class TransactionShard(LedgerShard[TransactionLedger]):
    """Transactional ids of one partition of `__transaction_state`."""

    def __init__(self, env: Environment) -> None:
        super().__init__(TransactionLedger(env))
        self._env = env
        #: requests that wait until the markers of a transaction are written
        self._waiting: dict[str, list[tuple[ReplyTo, Addition, Callable[[ErrorCode], Struct]]]] = {}

    # -- for the runtime

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        record = decode_record(key, value)
        if record is not None:
            self._ledger.apply(*record)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """`__transaction_state` has no transactional records."""

    def open_since(self) -> list[int]:
        """When each open transaction has begun, in milliseconds since 1970."""
        ledger = self._ledger
        return [ledger.by_id[each].start_ms for each in ledger.deadlines_ms if each in ledger.by_id]

    def two_phase(self, now_ms: int) -> tuple[int, int]:
        """Open two-phase transactions, and those of them that are older than ordinary ones may become."""
        ledger, oldest_ms = self._ledger, now_ms - self._env.settings.timeout_ms_max
        began = [
            ledger.by_id[each].start_ms
            for each in ledger.deadlines_ms
            if each in ledger.by_id and ledger.by_id[each].is_two_phase
        ]
        return len(began), sum(start_ms < oldest_ms for start_ms in began)

    def overdue(self, now_ms: int) -> int:
        """The number of transactions whose timeout has passed and that are not complete.

        `now_ms` is the wall clock: only a transaction that ends is judged by it. The markers of such a one
        cannot be written, because a partition has no leader.
        """
        ledger, timer_ms = self._ledger, self.timers.now_ms
        ending = (ledger.by_id[each] for each in ledger.unmarked if each in ledger.by_id)
        return sum(deadline_ms < timer_ms for deadline_ms in ledger.deadlines_ms.values()) + sum(
            _is_late(found, now_ms, self._env.settings.timeout_ms_max) for found in ending
        )

    def on_loaded(self) -> None:
        self._ledger.loaded()
        self.timers.schedule((_ABORT_TIMED_OUT,), self._env.settings.abort_check_ms)
        self.timers.schedule((_EXPIRE_IDS,), self._env.settings.expiry_check_ms)

    def timer_expired(self, key: TimerKey) -> None:
        if key[0] == _ABORT_TIMED_OUT:
            has_more = self._abort_timed_out()
            self.timers.schedule(key, _SOON_MS if has_more else self._env.settings.abort_check_ms)
        elif key[0] == _EXPIRE_IDS:
            has_more = self._expire_ids()
            self.timers.schedule(key, _SOON_MS if has_more else self._env.settings.expiry_check_ms)
        elif key[0] == _WAITING:
            for reply_to, _, respond in self._waiting.pop(key[1], ()):
                self.outbox.replies.append((reply_to, respond(ErrorCode.CONCURRENT_TRANSACTIONS)))

    # -- InitProducerId

    def init_producer_id(self, transactional_id: str, wanted: Initialization) -> InitProducerIdResponse:
        return init_producer_id(self._ledger, transactional_id, wanted)

    # -- AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(
        self, addition: Addition, respond: Callable[[ErrorCode], Struct], reply_to: ReplyTo
    ) -> Struct | None:
        """Returns None if the request waits for the markers of the transaction before."""
        transactional_id = addition.transactional_id
        found = self._ledger.by_id.get(transactional_id)
        if found is not None and found.state in PREPARED:
            # Before the check of the producer id: the client may know the next one already.
            self._waiting.setdefault(transactional_id, []).append((reply_to, addition, respond))
            if (_WAITING, transactional_id) not in self.timers:
                self.timers.schedule((_WAITING, transactional_id), WAIT_MS)
            return None
        return respond(self._add(addition))

    def _add(self, addition: Addition) -> ErrorCode:
        if not addition.transactional_id:
            return ErrorCode.INVALID_REQUEST
        found = self._ledger.by_id.get(addition.transactional_id)
        if found is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if found.state in PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        code = _check_producer(found, addition)
        if code:
            return code
        if found.state is not TransactionState.ONGOING or not addition.partitions <= found.partitions:
            changed = found.with_partitions(addition.partitions, self._ledger.now_ms, addition.version)
            if not self._ledger.write_if_it_fits(addition.transactional_id, changed):
                # Kafka's code. A refused append would fail the requests of all producers of this shard.
                return ErrorCode.UNKNOWN_SERVER_ERROR
        return ErrorCode.NONE

    def verify_partitions(self, addition: Addition) -> dict[TopicPartition, ErrorCode]:
        """Whether each partition is part of the producer's open transaction."""
        found = self._ledger.by_id.get(addition.transactional_id)
        code = ErrorCode.NONE
        if not addition.transactional_id:
            code = ErrorCode.INVALID_REQUEST
        elif found is None:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        else:
            code = _check_producer(found, addition)
            if not code and found.state in PREPARED:
                code = ErrorCode.CONCURRENT_TRANSACTIONS
        if code or found is None:
            return dict.fromkeys(addition.partitions, code)
        return {
            partition: ErrorCode.NONE if partition in found.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in addition.partitions
        }

    # -- EndTxn

    def end_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, committed: bool, version: int
    ) -> EndTxnResponse:
        """`version` is the transaction.version of the client's request."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        found = self._ledger.by_id.get(transactional_id)
        if found is None:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if version >= BUMPS_EPOCHS_FROM:
            ending = _ending_v2(found, producer_id, producer_epoch, committed)
        else:
            ending = _ending_v1(found, producer_id, producer_epoch, committed)
        if ending is Ending.FENCED:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        if ending is Ending.INVALID_STATE:
            raise ApiError(ErrorCode.INVALID_TXN_STATE)
        changed = found
        if ending is Ending.PREPARE:
            changed = self._prepare(transactional_id, found, committed, version)
        if version < BUMPS_EPOCHS_FROM:
            return EndTxnResponse()
        return EndTxnResponse(producer_id=changed.producer_id, producer_epoch=changed.producer_epoch)

    def _prepare(
        self, transactional_id: str, found: TransactionMetadata, committed: bool, version: int
    ) -> TransactionMetadata:
        """Decide the transaction. Returns its state once it is complete: the client uses that already."""
        ledger = self._ledger
        new_id = ledger.producer_id_after(found) if version >= BUMPS_EPOCHS_FROM else NO_PRODUCER
        prepared = found.prepared(committed, version, ledger.now_ms, new_producer_id=new_id)
        ledger.write(transactional_id, prepared)
        return prepared.completed(ledger.now_ms)

    def markers_written(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """The markers of a `SendMarkers` effect are written to `partitions`, or these are deleted."""
        ledger = self._ledger
        found = ledger.by_id.get(transactional_id)
        if (
            found is None
            or found.state not in PREPARED
            or (found.producer_id, found.producer_epoch) != (producer_id, producer_epoch)
        ):
            return
        unmarked = ledger.unmarked.get(transactional_id, set())
        unmarked.difference_update(partitions)
        if unmarked:
            return
        ledger.unmarked.pop(transactional_id, None)
        ledger.write(transactional_id, found.completed(ledger.now_ms))
        self.timers.cancel((_WAITING, transactional_id))
        for reply_to, addition, respond in self._waiting.pop(transactional_id, ()):
            self.outbox.replies.append((reply_to, respond(self._add(addition))))

    # -- administration

    def describe(self, transactional_id: str) -> DescribedTransaction:
        if not transactional_id:
            return DescribedTransaction(error_code=ErrorCode.INVALID_REQUEST)
        found = self._ledger.by_id.get(transactional_id)
        if found is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return DescribedTransaction(error_code=code, transactional_id=transactional_id)
        topics: dict[str, list[int]] = {}
        for topic, index in sorted(self._ledger.unmarked.get(transactional_id, found.partitions)):
            topics.setdefault(topic, []).append(index)
        return DescribedTransaction(
            transactional_id=transactional_id,
            transaction_state=found.state.label,
            transaction_timeout_ms=found.timeout_ms,
            transaction_start_time_ms=found.start_ms,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
        )

    def listing(self, wanted: TransactionFilter) -> Generator[None, None, list[ListedTransaction]]:
        """The transactions that match, found some at a time: they may change meanwhile."""
        now_ms = self._ledger.now_ms
        items, listed = list(self._ledger.by_id.items()), []
        for start in range(0, len(items), _LISTED_AT_ONCE):
            listed += [
                ListedTransaction(
                    transactional_id=transactional_id,
                    producer_id=found.producer_id,
                    transaction_state=found.state.label,
                )
                for transactional_id, found in items[start : start + _LISTED_AT_ONCE]
                if (not wanted.producer_ids or found.producer_id in wanted.producer_ids)
                and (not wanted.states or found.state in wanted.states)
                and (wanted.duration_ms < 0 or now_ms - found.start_ms > wanted.duration_ms)
            ]
            yield
        return listed

    # -- timeouts and expiry

    def _abort_timed_out(self) -> bool:
        """Abort some transactions whose timeout has passed; returns true if there may be more of them."""
        ledger, now_ms = self._ledger, self.timers.now_ms
        due = (each for each, deadline_ms in ledger.deadlines_ms.items() if deadline_ms <= now_ms)
        some = [*islice(due, _ABORTED_AT_ONCE)]
        has_failed = False
        for transactional_id in some:
            try:
                fence(ledger, transactional_id, ledger.by_id[transactional_id])
            except ApiError:
                # No producer id is available yet. The next check tries again.
                has_failed = True
        return len(some) == _ABORTED_AT_ONCE and not has_failed

    def _expire_ids(self) -> bool:
        """Delete some ids that were not used for long; returns true if there may be more of them."""
        if not self._env.may_expire():
            return False
        ledger = self._ledger
        oldest_ms = ledger.now_ms - self._env.settings.id_expiration_ms
        unused = (
            each
            for each, found in ledger.by_id.items()
            if found.state in EXPIRABLE and found.update_ms <= oldest_ms
        )
        some = [*islice(unused, _EXPIRED_AT_ONCE)]
        for transactional_id in some:
            ledger.delete(transactional_id)
        return len(some) == _EXPIRED_AT_ONCE


def _is_late(found: TransactionMetadata, now_ms: int, timeout_ms_max: int) -> bool:
    """A two-phase transaction has no timeout: its markers have the longest one, from the decision on."""
    if found.is_two_phase:
        return 0 <= found.update_ms < now_ms - timeout_ms_max
    return 0 <= found.start_ms < now_ms - found.timeout_ms


def _check_producer(found: TransactionMetadata, addition: Addition) -> ErrorCode:
    producer_id, epoch = found.client_pair
    if found.is_kept and addition.producer_id == found.producer_id != producer_id:
        return ErrorCode.PRODUCER_FENCED
    if producer_id != addition.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if epoch != addition.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    # A transaction that is kept can only be ended.
    is_decided_only = found.state is TransactionState.ONGOING and found.is_kept
    return ErrorCode.INVALID_TXN_STATE if is_decided_only else ErrorCode.NONE


def _ending_v1(found: TransactionMetadata, producer_id: int, epoch: int, committed: bool) -> Ending:
    current_id, current_epoch = found.client_pair
    if current_id != producer_id:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current_epoch != epoch:
        return Ending.FENCED
    if found.state in PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return END_V1[found.state, committed]


def _ending_v2(found: TransactionMetadata, producer_id: int, epoch: int, committed: bool) -> Ending:
    if found.state in PREPARED:
        # Before the check of the producer id: an overflow of the epoch changes the id.
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    current_id, current_epoch = found.client_pair
    overflowed = found.is_retried_overflow(producer_id, epoch)
    if current_id != producer_id and not overflowed:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    retried = overflowed or current_epoch == epoch + 1
    if not retried and epoch != current_epoch:
        return Ending.FENCED
    return END_V2[found.state, committed, retried]
