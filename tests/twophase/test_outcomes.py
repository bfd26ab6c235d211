"""What the answers of a transaction coordinator mean to an external coordinator."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.twophase.outcomes import (
    INIT_TWO_PHASE,
    NotSupported,
    OtherOutcome,
    PreparedTransaction,
    TwoPhaseError,
    Verdict,
    abort_request,
    end_refusal,
    end_request,
    end_verdict,
    keep_refusal,
    keep_request,
    prepared_in,
)
from penstock.wire.apis.init_producer_id import InitProducerIdResponse

PREPARED = PreparedTransaction("loader:7:1", 42, 3)


def test_a_prepared_transaction_survives_as_text() -> None:
    assert str(PREPARED) == "42:3:loader:7:1"
    assert PreparedTransaction.parse(str(PREPARED)) == PREPARED
    with pytest.raises(ValueError, match="unpack"):
        PreparedTransaction.parse("42")


def test_no_version_without_the_flags_keeps_a_transaction() -> None:
    """An older version would drop them, and the broker would abort the transaction."""
    assert INIT_TWO_PHASE.min_supported == 6
    kept = keep_request("x")
    assert (kept.enable_2pc, kept.keep_prepared_txn) == (True, True)
    aborted = abort_request("x")
    assert (aborted.enable_2pc, aborted.keep_prepared_txn) == (False, False)


def test_the_epoch_that_ends_a_kept_transaction_is_that_of_the_new_producer() -> None:
    response = InitProducerIdResponse(
        producer_id=73, producer_epoch=0, ongoing_txn_producer_id=42, ongoing_txn_producer_epoch=9
    )
    assert prepared_in(response, "x") == PreparedTransaction("x", 73, 0)
    assert prepared_in(InitProducerIdResponse(producer_id=73, producer_epoch=0), "x") is None
    request = end_request(PREPARED, committed=True)
    assert (request.producer_id, request.producer_epoch, request.committed) == (42, 3, True)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, Verdict.DONE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Verdict.RETRY),
        (ErrorCode.NOT_COORDINATOR, Verdict.RETRY),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.RETRY),
        (ErrorCode.PRODUCER_FENCED, Verdict.OTHER_OUTCOME),
        (ErrorCode.INVALID_TXN_STATE, Verdict.OTHER_OUTCOME),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, Verdict.OTHER_OUTCOME),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FAILED),
        (999, Verdict.FAILED),
    ],
)
def test_codes_of_an_end(code: int, verdict: Verdict) -> None:
    assert end_verdict(code) is verdict


def test_errors_name_the_missing_setting() -> None:
    off = keep_refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "x")
    assert isinstance(off, NotSupported) and "transaction.two.phase.commit.enable=true" in str(off)
    old = keep_refusal(ErrorCode.UNSUPPORTED_VERSION, "x")
    assert isinstance(old, NotSupported) and "InitProducerId 6" in str(old)
    assert type(keep_refusal(ErrorCode.INVALID_REQUEST, "x")) is TwoPhaseError
    other = end_refusal(ErrorCode.INVALID_TXN_STATE, PREPARED, committed=True)
    assert isinstance(other, OtherOutcome) and "cannot be committed (INVALID_TXN_STATE)" in str(other)
    failed = end_refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, PREPARED, committed=False)
    assert type(failed) is TwoPhaseError and "is not aborted" in str(failed)
    assert all("\n" not in str(each) for each in (off, old, other, failed))
