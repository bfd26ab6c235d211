"""Two-phase transactions for `penstock transaction`: find those without an outcome, and end one (KIP-939)."""

from __future__ import annotations

import time
from typing import Any, Final

from penstock.cli.direct import DirectLine, NoAnswer, refuse
from penstock.cli.failure import Failure
from penstock.cli.transactions import describe, list_transactions
from penstock.model.addresses import address_text
from penstock.twophase.outcomes import (
    INIT_TWO_PHASE,
    NO_TIMEOUT_MS,
    PreparedTransaction,
    TwoPhaseError,
    Verdict,
    end_refusal,
    end_request,
    end_verdict,
    keep_refusal,
    keep_request,
    prepared_in,
)
from penstock.wire.api import Api
from penstock.wire.apis.describe_transactions import DescribedTransaction
from penstock.wire.apis.end_txn import END_TXN
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from penstock.wire.apis.list_transactions import ListTransactionsRequest
from penstock.wire.routing import TRANSACTION, Reaction, coordinator_in, coordinator_request, reaction_to

__all__ = ["end", "orphans"]

_PAUSE_S: Final = 0.1


def orphans(line: DirectLine, now_ms: int, older_than_ms: int) -> list[dict[str, Any]]:
    """Open two-phase transactions that are older than that, the oldest first."""
    request = ListTransactionsRequest(state_filters=["Ongoing"], duration_filter=older_than_ms)
    rows = []
    for listed in list_transactions(line, request):
        coordinator, found = describe(line, listed["transactional_id"])
        age_ms = now_ms - found.transaction_start_time_ms
        if found.transaction_timeout_ms == NO_TIMEOUT_MS and age_ms > older_than_ms:
            rows.append(_row(coordinator, found, age_ms))
    return sorted(rows, key=lambda row: -int(row["minutes"]))


def _row(coordinator: int, found: DescribedTransaction, age_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "coordinator": coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "minutes": age_ms // 60_000,
        "partitions": ",".join(f"{t.topic}-{index}" for t in found.topics for index in t.partitions),
    }


def end(line: DirectLine, transactional_id: str, *, committed: bool) -> None:
    """Decide an open transaction in the place of its external coordinator, which is fenced by it."""
    _, found = describe(line, transactional_id)
    if found.transaction_state != "Ongoing":
        state = found.transaction_state
        raise Failure(f"transactional id {transactional_id!r} has no open transaction: it is {state}")
    request = keep_request(transactional_id)
    # A transaction that has a timeout keeps it, and no right beyond Write is needed.
    request.enable_2pc = False
    try:
        kept = _settled(line, transactional_id, INIT_TWO_PHASE, request)
        if kept.error_code:
            raise Failure(str(keep_refusal(kept.error_code, transactional_id)))
        prepared = prepared_in(kept, transactional_id)
        if prepared is None:
            raise Failure(f"the transaction of {transactional_id!r} was ended meanwhile")
        _end(line, prepared, committed)
    except TwoPhaseError as e:
        raise Failure(str(e)) from e


def _end(line: DirectLine, prepared: PreparedTransaction, committed: bool) -> None:
    answer = _settled(line, prepared.transactional_id, END_TXN, end_request(prepared, committed))
    if end_verdict(answer.error_code) is not Verdict.DONE:
        raise end_refusal(answer.error_code, prepared, committed)


def _settled(line: DirectLine, transactional_id: str, api: Api[Any, Any], request: Any) -> Any:
    """The first response of a coordinator that asks for no retry; NoAnswer if there is none in time."""
    deadline_s = time.monotonic() + line.timeout_s
    wanted = coordinator_request(transactional_id, TRANSACTION)
    while True:
        found = coordinator_in(line.send(FIND_COORDINATOR, wanted))
        code = found.error_code
        if not code:
            address = address_text(found.host, found.port)
            answer = line.send_each([address], api, request)[address]
            if answer is None:
                raise NoAnswer(f"{address} does not answer {api.name} {api.min_supported} or later")
            code = answer.error_code
            if reaction_to(code) in (Reaction.NONE, Reaction.FAIL):
                return answer
        elif reaction_to(code) is Reaction.FAIL:
            refuse(code, found.error_message, f"transactional id {transactional_id!r}")
        if time.monotonic() > deadline_s:
            refuse(code, None, f"the coordinator of {transactional_id!r} is not ready")
        time.sleep(_PAUSE_S)
