"""The requests of an external coordinator, and what the coordinator of the transaction answers. No I/O."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple, Self

from penstock.model.errors import ErrorCode, PenstockError, error_name
from penstock.wire.api import Api
from penstock.wire.apis.end_txn import EndTxnRequest
from penstock.wire.apis.init_producer_id import (
    INIT_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.wire.routing import Reaction, reaction_to

__all__ = [
    "INIT_TWO_PHASE",
    "NO_TIMEOUT_MS",
    "NotSupported",
    "OtherOutcome",
    "PreparedTransaction",
    "TwoPhaseError",
    "Verdict",
    "abort_request",
    "end_refusal",
    "end_request",
    "end_verdict",
    "keep_refusal",
    "keep_request",
    "prepared_in",
]

#: InitProducerId in versions that have the flags. Older ones would abort the transaction instead.
INIT_TWO_PHASE: Final = Api(
    INIT_PRODUCER_ID.key,
    INIT_PRODUCER_ID.name,
    (6, INIT_PRODUCER_ID.max_version),
    flexible_from=INIT_PRODUCER_ID.flexible_from,
    request=INIT_PRODUCER_ID.request,
    response=INIT_PRODUCER_ID.response,
)
#: the timeout of a two-phase transaction
NO_TIMEOUT_MS: Final = 2**31 - 1
#: of a transaction that is aborted at once: any timeout that brokers allow
_TIMEOUT_MS: Final = 1_000
_NO_PRODUCER: Final = -1


class TwoPhaseError(PenstockError):
    """Base of the errors here; `code` is Kafka's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class NotSupported(TwoPhaseError):
    """The cluster has no two-phase commit, or does not allow it for this transactional id."""


class OtherOutcome(TwoPhaseError):
    """The transaction was ended otherwise, or belongs to another producer by now."""


class PreparedTransaction(NamedTuple):
    """What an external coordinator stores to decide a transaction later, from any connection."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        """`PRODUCER_ID:EPOCH:TRANSACTIONAL_ID`, which `parse` reads."""
        return f"{self.producer_id}:{self.producer_epoch}:{self.transactional_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """ValueError if `text` is not what `str` has made."""
        producer_id, epoch, transactional_id = text.split(":", 2)
        return cls(transactional_id, int(producer_id), int(epoch))


class Verdict(Enum):
    """What an error code of EndTxn means."""

    DONE = auto()
    RETRY = auto()
    OTHER_OUTCOME = auto()
    FAILED = auto()


def keep_request(transactional_id: str) -> InitProducerIdRequest:
    """Keep the open transaction, without a timeout, and fence its producer."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=_TIMEOUT_MS,
        enable_2pc=True,
        keep_prepared_txn=True,
    )


def abort_request(transactional_id: str) -> InitProducerIdRequest:
    """Abort the open transaction, and fence its producer."""
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS)


def end_request(prepared: PreparedTransaction, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        committed=committed,
    )


def prepared_in(response: InitProducerIdResponse, transactional_id: str) -> PreparedTransaction | None:
    """The transaction that was kept; None if none was open."""
    if response.ongoing_txn_producer_id == _NO_PRODUCER:
        return None
    return PreparedTransaction(transactional_id, response.producer_id, response.producer_epoch)


def keep_refusal(code: int, transactional_id: str) -> TwoPhaseError:
    """The error of a request to keep a transaction that is not repeated."""
    if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return NotSupported(
            f"the cluster refuses two-phase transactions of {transactional_id!r}: set "
            "transaction.two.phase.commit.enable=true in the config of all brokers, and allow Write and "
            "TwoPhaseCommit on this transactional id",
            code,
        )
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return NotSupported(
            "the cluster does not keep prepared transactions: it needs InitProducerId 6 (KIP-939) at all "
            "brokers, for example Penstock 0.2 at level 2 of penstock.version",
            code,
        )
    return TwoPhaseError(f"the transaction of {transactional_id!r} is not kept: {error_name(code)}", code)


_OTHER: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)


def end_verdict(code: int) -> Verdict:
    """CONCURRENT_TRANSACTIONS is a retry: markers are written, perhaps those of the request before."""
    if code in _OTHER:
        return Verdict.OTHER_OUTCOME
    reaction = reaction_to(code)
    if reaction is Reaction.NONE:
        return Verdict.DONE
    return Verdict.FAILED if reaction is Reaction.FAIL else Verdict.RETRY


def end_refusal(code: int, prepared: PreparedTransaction, committed: bool) -> TwoPhaseError:
    wanted = "committed" if committed else "aborted"
    about = (
        f"the transaction of {prepared.transactional_id!r} (producer {prepared.producer_id}, epoch "
        f"{prepared.producer_epoch})"
    )
    if end_verdict(code) is Verdict.OTHER_OUTCOME:
        return OtherOutcome(
            f"{about} cannot be {wanted} ({error_name(code)}): it was ended otherwise, or another producer "
            "has its transactional id",
            code,
        )
    return TwoPhaseError(f"{about} is not {wanted}: {error_name(code)}", code)
