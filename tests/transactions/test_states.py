"""Kafka's `TransactionState`: the states, their numbers and names, and their valid previous states."""

from __future__ import annotations

from penstock.transactions.states import COMPLETED, EXPIRABLE, PREPARED, PREVIOUS_STATES, TransactionState

S = TransactionState


def test_states_have_kafkas_numbers_and_names() -> None:
    assert [(state.value, state.label) for state in S] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
    ]


def test_each_state_can_be_entered_from_kafkas_previous_states() -> None:
    completed = {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    assert {
        S.EMPTY: completed,
        S.ONGOING: completed | {S.ONGOING},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: completed | {S.ONGOING},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
    } == PREVIOUS_STATES


def test_each_state_is_reached_from_empty_and_leads_back_to_a_completed_one() -> None:
    reached = {S.EMPTY}
    for _ in S:
        reached |= {state for state in S if PREVIOUS_STATES[state] & reached}
    assert reached == set(S)
    ended = set(COMPLETED)
    for _ in S:
        ended |= {previous for state in ended for previous in PREVIOUS_STATES[state]}
    assert ended == set(S)


def test_only_states_without_a_transaction_expire() -> None:
    assert set(S) - PREPARED - {S.ONGOING} == EXPIRABLE
