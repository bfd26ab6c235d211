"""Each anomaly is found in a history that has it, and in none that has not."""

from __future__ import annotations

import pytest

from chaos.checker import ANOMALIES, anomalies
from chaos.history import History, Outcome, Poll, Record, Send

OK, FAILED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.FAILED, Outcome.UNKNOWN


def sent(value: int, offset: int | None, outcome: Outcome = OK, producer: str = "p") -> Send:
    return Send(producer, 0, value, outcome, offset)


def polled(*places: tuple[int, int], consumer: str = "c", moved: bool = False) -> Poll:
    return Poll(consumer, [Record(0, offset, value) for offset, value in places], moved)


UNSURE = [sent(10, None, UNKNOWN), sent(11, None, UNKNOWN)]
THREE = [sent(10, 0), sent(11, 1), sent(12, 2)]

CASES = {
    "lost-write": History(THREE, [polled((0, 10), (2, 12))]),
    "unseen": History(THREE, [polled((0, 10), (1, 11))]),
    "duplicate": History(THREE[:1], [polled((0, 10), (1, 10))]),
    "inconsistent-offsets": History(THREE[:1], [polled((0, 10)), polled((0, 99), consumer="d")]),
    "nonmonotonic-poll": History(THREE[:2], [polled((0, 10), (1, 11)), polled((1, 11))]),
    "int-nonmonotonic-poll": History(THREE[:2], [polled((1, 11), (0, 10))]),
    "poll-skip": History(THREE, [polled((0, 10)), polled((2, 12)), polled((1, 11), consumer="d")]),
    "int-poll-skip": History(THREE, [polled((0, 10), (2, 12)), polled((1, 11), consumer="d")]),
    "nonmonotonic-send": History([sent(10, 1), sent(11, 0)], [polled((0, 11), (1, 10))]),
    "G1a": History([sent(10, None, FAILED)], [polled((0, 10))]),
    "torn-transaction": History(UNSURE, [polled((0, 10))], [UNSURE]),
}


def test_every_anomaly_has_a_case() -> None:
    assert set(CASES) == set(ANOMALIES)


@pytest.mark.parametrize("name", CASES)
def test_the_anomaly_is_found(name: str) -> None:
    found = anomalies(CASES[name])
    assert len(found[name]) == 1
    # A member that skips a record which no other member reads has lost it.
    assert set(found) <= {name, *(["int-poll-skip"] if name == "lost-write" else [])}


def test_a_clean_history_has_no_violation() -> None:
    sends = [*THREE, sent(13, None, UNKNOWN), sent(14, None, FAILED), sent(15, 5, producer="q")]
    polls = [polled((0, 10), (1, 11)), polled((2, 12), (3, 13), (5, 15))]
    assert anomalies(History(sends, polls)) == {}


def test_a_transaction_with_unknown_outcome_is_visible_as_a_whole_or_not_at_all() -> None:
    assert anomalies(History(UNSURE, [], [UNSURE])) == {}
    assert anomalies(History(UNSURE, [polled((0, 10), (1, 11))], [UNSURE])) == {}


def test_a_send_with_unknown_outcome_may_be_missing() -> None:
    assert anomalies(History([sent(10, None, UNKNOWN)], [])) == {}


def test_a_consumer_that_was_moved_may_go_back_and_skip() -> None:
    polls = [polled((0, 10), (1, 11), (2, 12)), polled((0, 10), moved=True), polled((2, 12), moved=True)]
    assert anomalies(History(THREE, polls)) == {}


def test_offsets_without_a_record_are_no_gap() -> None:
    assert anomalies(History([sent(10, 0), sent(11, 7)], [polled((0, 10), (7, 11))])) == {}


def test_producers_are_not_ordered_among_each_other() -> None:
    sends = [sent(10, 1), sent(11, 0, producer="q")]
    assert anomalies(History(sends, [polled((0, 11), (1, 10))])) == {}
