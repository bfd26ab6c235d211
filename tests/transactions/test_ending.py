"""The tables of EndTxn have an entry for each state in which markers are not being written."""

from __future__ import annotations

from itertools import product

import pytest

from penstock.transactions.ending import ABORT, COMMIT, CURRENT, END_V1, END_V2, RETRY, Ending
from penstock.transactions.states import PREPARED, TransactionState

STATES = [state for state in TransactionState if state not in PREPARED]


def test_the_tables_are_complete() -> None:
    assert set(END_V1) == set(product(STATES, (COMMIT, ABORT)))
    assert set(END_V2) == set(product(STATES, (COMMIT, ABORT), (RETRY, CURRENT)))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_markers_are_written_of_an_ongoing_transaction_or_of_an_empty_abort(
    state: TransactionState, outcome: bool
) -> None:
    """KIP-890: a client with version 2 may abort without a transaction, to get the next epoch."""
    is_ongoing = state is TransactionState.ONGOING
    assert (END_V1[state, outcome] is Ending.PREPARE) == is_ongoing
    assert (END_V2[state, outcome, CURRENT] is Ending.PREPARE) == (is_ongoing or outcome == ABORT)


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_retry_never_ends_another_transaction(outcome: bool) -> None:
    for state in STATES:
        assert END_V2[state, outcome, RETRY] is not Ending.PREPARE


def test_a_repeated_request_has_the_result_of_the_first() -> None:
    completed = {COMMIT: TransactionState.COMPLETE_COMMIT, ABORT: TransactionState.COMPLETE_ABORT}
    for asked, done in product((COMMIT, ABORT), repeat=2):
        expected = Ending.DONE if asked == done else Ending.INVALID_STATE
        assert END_V1[completed[done], asked] is expected
        assert END_V2[completed[done], asked, RETRY] is expected
