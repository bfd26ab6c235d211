"""The checks of transactional histories: each rule is broken once."""

from __future__ import annotations

import pytest

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.history import Coordinates
from penstock.testing.simulation.transaction_checker import TransactionChecker, copy_value, source_of
from penstock.testing.simulation.transaction_events import (
    Ended,
    Ending,
    Initialized,
    Initializing,
    RefusedAsFenced,
    StoredOffset,
    Transaction,
    TransactionalAck,
    TransactionalRead,
    TransactionalSend,
)

LEDGER = TopicPartition("ledger", 0)
OTHER = TopicPartition("ledger", 1)
INPUT = TopicPartition("events", 0)
FIRST = Transaction("writer", 1, 1)
SECOND = Transaction("writer", 2, 1)


def _observe(*events: object) -> TransactionChecker:
    checker = TransactionChecker(check_fencing=True)
    for event in events:
        checker.observe("client", event)
    return checker


def _sent(value: bytes, offset: int, partition: TopicPartition = LEDGER) -> list[object]:
    return [
        TransactionalSend(FIRST, partition, (value,)),
        TransactionalAck(FIRST, partition, (value,), offset),
    ]


def _read(*records: tuple[int, bytes], end: int, partition: TopicPartition = LEDGER) -> TransactionalRead:
    return TransactionalRead(partition, 0, end, records, is_committed=True, last_stable_offset=end)


def _violation(*events: object) -> str:
    with pytest.raises(Violation) as error:
        _observe(*events)
    return error.value.name


def test_an_undecided_record_must_not_be_read() -> None:
    assert _violation(*_sent(b"a", 0), _read((0, b"a"), end=1)) == "undecided record read"


def test_an_aborted_record_must_not_be_read() -> None:
    ended = [Ending(FIRST, False), Ended(FIRST, False)]
    assert _violation(*_sent(b"a", 0), *ended, _read((0, b"a"), end=1)) == "aborted record read"
    refused = [Ending(FIRST, True), Ended(FIRST, False)]
    assert _violation(*_sent(b"a", 0), *refused, _read((0, b"a"), end=1)) == "aborted record read"


def test_a_committed_record_is_read() -> None:
    ended = [Ending(FIRST, True), Ended(FIRST, True)]
    assert _violation(*_sent(b"a", 0), *ended, _read(end=2)) == "committed record not read"
    assert _observe(*_sent(b"a", 0), *ended, _read((0, b"a"), end=2)).committed == 1


def test_a_transaction_with_an_unknown_outcome_is_read_as_a_whole() -> None:
    sent = [*_sent(b"a", 0), *_sent(b"b", 0, OTHER), Ending(FIRST, True)]
    seen = _read((0, b"a"), end=1)
    assert _violation(*sent, seen, _read(end=2, partition=OTHER)) == "torn transaction"
    checker = _observe(*sent, seen, Ended(FIRST, None))
    with pytest.raises(Violation, match="torn transaction"):
        checker.finish({LEDGER: [(0, b"a")], OTHER: []}, {}, {})


def test_nothing_above_the_last_stable_offset_is_read() -> None:
    read = TransactionalRead(LEDGER, 0, 1, ((0, b"a"),), is_committed=True, last_stable_offset=0)
    events = [*_sent(b"a", 0), Ending(FIRST, True), read]
    assert _violation(*events) == "read above the last stable offset"


def test_a_record_has_one_offset() -> None:
    again = TransactionalRead(LEDGER, 0, 3, ((0, b"a"), (2, b"a")), False, 3)
    assert _violation(*_sent(b"a", 0), again) == "duplicate"
    assert _violation(*_sent(b"a", 0), *_sent(b"b", 0)) == "record changed"
    assert _violation(_read((0, b"a"), end=1)) == "phantom"


def test_a_fenced_instance_writes_nothing() -> None:
    begun = [
        Initializing("writer", 1),
        Initialized("writer", 1, 7, 0),
        Initializing("writer", 2),
        Initialized("writer", 2, 7, 1),
    ]
    assert _violation(*begun, *_sent(b"a", 0)) == "fenced producer wrote"
    read = TransactionalRead(LEDGER, 0, 1, ((0, b"a"),), False, 1)
    assert _violation(*begun, TransactionalSend(FIRST, LEDGER, (b"a",)), read) == "fenced producer wrote"


def test_two_instances_have_different_epochs() -> None:
    assert (
        _violation(Initialized("writer", 1, 7, 0), Initialized("writer", 2, 7, 0))
        == "two producers with one epoch"
    )


def test_a_producer_is_fenced_for_a_reason() -> None:
    begun = [Initializing("writer", 1), Initialized("writer", 1, 7, 0)]
    refused = RefusedAsFenced(FIRST, "PRODUCER_FENCED", is_certain=True)
    assert _violation(*begun, refused) == "fenced without a cause"
    _observe(*begun, Initializing("writer", 2), refused)
    _observe(*begun, RefusedAsFenced(FIRST, "PRODUCER_FENCED", is_certain=False))


def test_offsets_and_outputs_agree() -> None:
    value = copy_value(INPUT, 3, FIRST)
    assert source_of(value) == (0, 3)
    assert source_of(b"writer.1") is None
    sent = [*_sent(value, 0), Ending(FIRST, True), Ended(FIRST, True)]
    _observe(*sent).finish({LEDGER: [(0, value)]}, {0: 4}, {0: [3, 4]})
    for position in (3, 5):
        with pytest.raises(Violation, match="offsets and outputs differ"):
            _observe(*sent).finish({LEDGER: [(0, value)]}, {0: position}, {0: [3, 4]})


def test_an_input_is_processed_once() -> None:
    one, other = copy_value(INPUT, 3, FIRST), copy_value(INPUT, 3, SECOND)
    events = [
        *_sent(one, 0),
        Ending(FIRST, True),
        TransactionalSend(SECOND, LEDGER, (other,)),
        TransactionalAck(SECOND, LEDGER, (other,), 1),
        Ending(SECOND, True),
    ]
    assert _violation(*events, _read((0, one), (1, other), end=2)) == "processed twice"


def test_a_committed_record_is_there_at_the_end() -> None:
    checker = _observe(*_sent(b"a", 0), Ending(FIRST, True), Ended(FIRST, True))
    with pytest.raises(Violation, match="committed record lost"):
        checker.finish({LEDGER: []}, {}, {})


def test_the_stored_offset_is_the_last_one() -> None:
    assert _violation(StoredOffset("mixed", INPUT, 2, 3, 1)) == "stored offset changed"


def test_a_coordinator_that_was_replaced_may_know_older_offsets_only() -> None:
    replaced = Coordinates("group", 1, 0), Coordinates("group", 2, 1)
    _observe(*replaced, StoredOffset("mixed", INPUT, 2, 3, 1))
    assert _violation(*replaced, StoredOffset("mixed", INPUT, 2, 3, 2)) == "stored offset changed"
    assert _violation(*replaced, StoredOffset("mixed", INPUT, 4, 3, 1)) == "stored offset changed"
