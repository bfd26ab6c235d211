"""InitProducerId: a new epoch, the end of an open transaction, or its preservation (KIP-939).

A producer that restarts gets a higher epoch. Its open transaction is aborted, unless the request keeps it:
then the transaction is left as it is, and the producer decides it with the new epoch.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode
from penstock.transactions.ledger import TransactionLedger
from penstock.transactions.metadata import (
    BUMPS_EPOCHS_FROM,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    TransactionMetadata,
    is_exhausted,
    new_metadata,
)
from penstock.transactions.states import PREPARED, TransactionState
from penstock.wire.apis.init_producer_id import InitProducerIdResponse

__all__ = ["Initialization", "fence", "init_producer_id"]


class Initialization(NamedTuple):
    """What a producer asks for."""

    timeout_ms: int
    #: the (producer id, epoch) of a producer that continues after an error (KIP-360)
    expected: tuple[int, int] | None = None
    #: an external coordinator decides the transactions of this producer: they have no timeout
    two_phase: bool = False
    keep_prepared: bool = False


def init_producer_id(
    ledger: TransactionLedger, transactional_id: str, wanted: Initialization
) -> InitProducerIdResponse:
    _check(ledger, transactional_id, wanted)
    timeout_ms = NO_TIMEOUT_MS if wanted.two_phase else wanted.timeout_ms
    expected = wanted.expected
    found = ledger.by_id.get(transactional_id)
    if found is None:
        found = new_metadata(ledger.new_producer_id(), timeout_ms, ledger.now_ms)
        expected = None
    elif found.state in PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
    elif expected is not None and not _is_known(found, *expected):
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if found.state is TransactionState.ONGOING:
        if wanted.keep_prepared:
            return _keep(ledger, transactional_id, found, wanted)
        # The producer of the open transaction is fenced. The retry gets an epoch that is one higher.
        fence(ledger, transactional_id, found)
        return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=-1)
    epoch = None if expected is None else expected[1]
    new_id = NO_PRODUCER
    if is_exhausted(found.producer_epoch) and epoch in (None, found.producer_epoch):
        new_id = ledger.new_producer_id()
    changed = found.initialized(timeout_ms, epoch, ledger.now_ms, new_id)
    ledger.write(transactional_id, changed)
    return InitProducerIdResponse(producer_id=changed.producer_id, producer_epoch=changed.producer_epoch)


def fence(ledger: TransactionLedger, transactional_id: str, found: TransactionMetadata) -> None:
    """Abort an open transaction in the name of the coordinator, with the cluster's level."""
    level = ledger.env.level()
    bumps = level >= BUMPS_EPOCHS_FROM
    new_id = ledger.producer_id_after(found) if bumps or found.is_kept else NO_PRODUCER
    ledger.write(
        transactional_id,
        found.prepared(False, level if bumps else 0, ledger.now_ms, fence=True, new_producer_id=new_id),
    )


def _check(ledger: TransactionLedger, transactional_id: str, wanted: Initialization) -> None:
    """The order of Kafka's checks. A cluster does not tell clients that it has no two-phase commit."""
    env = ledger.env
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if wanted.two_phase and not env.settings.two_phase_commit:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transaction.two.phase.commit.enable is false"
        )
    if wanted.keep_prepared and env.level() < BUMPS_EPOCHS_FROM:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "a prepared transaction needs transaction.version 2")
    if not wanted.two_phase and not 0 < wanted.timeout_ms <= env.settings.timeout_ms_max:
        raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)


def _keep(
    ledger: TransactionLedger, transactional_id: str, found: TransactionMetadata, wanted: Initialization
) -> InitProducerIdResponse:
    changed = found.kept(wanted.two_phase, ledger.now_ms, ledger.producer_id_after(found))
    ledger.write(transactional_id, changed)
    producer_id, epoch = changed.client_pair
    return InitProducerIdResponse(
        producer_id=producer_id,
        producer_epoch=epoch,
        ongoing_txn_producer_id=found.producer_id,
        ongoing_txn_producer_epoch=found.producer_epoch,
    )


def _is_known(found: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """The producer's own id, or the one before whose epoch is exhausted: its last response may be lost.

    Why: an earlier producer that recovers must not abort a transaction that waits for its outcome.
    """
    if found.state is TransactionState.ONGOING and (found.is_two_phase or found.is_kept):
        return (producer_id, epoch) == found.client_pair
    return producer_id == found.producer_id or (
        producer_id == found.previous_producer_id and is_exhausted(epoch)
    )
