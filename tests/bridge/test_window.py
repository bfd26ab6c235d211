"""Messages in flight: their counts add up, and none is due before it is written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge.errors import WriteFailed
from penstock.bridge.window import Entry, Window
from tests.bridge.fakes import message

FAILED = WriteFailed("refused", retriable=False)


def window(limit: int = 10, remembered: int = 100) -> Window:
    return Window(limit, "kafka", remembered)


def added(there: Window, number: int, unique: bool = True) -> Entry:
    entry = there.add(message(number, unique=unique))
    assert entry is not None
    return entry


def add_up(there: Window) -> bool:
    counts = there.counts
    ended = counts.acknowledged + counts.merged + counts.released + counts.lost
    return counts.received == ended + len(there) and counts.acknowledged <= counts.written + counts.skipped


def test_a_message_is_due_after_its_write() -> None:
    there = window()
    first, second = added(there, 1), added(there, 2)
    assert there.take_due() == [] and there.is_writing
    there.wrote(second)
    assert there.take_due() == [second]
    there.acknowledged([second])
    assert there.pending() == [first] and there.room == 9 and add_up(there)


def test_a_message_that_comes_again_in_flight_is_written_once_and_has_the_last_handle() -> None:
    there = window()
    entry = added(there, 1)
    assert there.add(message(1, handle="second receipt")) is None
    there.wrote(entry)
    (due,) = there.take_due()
    assert due.message.handle == "second receipt"
    there.acknowledged([due])
    assert (there.counts.received, there.counts.merged, there.counts.written) == (2, 1, 1)
    assert add_up(there)


def test_a_written_message_that_comes_again_is_acknowledged_without_a_write() -> None:
    there = window()
    there.wrote(added(there, 1))
    there.lose()
    assert there.add(message(1)) is None
    assert [entry.message.id for entry in there.take_due()] == ["S:1"]
    assert there.counts.skipped == 1


def test_ids_of_publishers_are_not_trusted_to_be_unique() -> None:
    there = window()
    first = added(there, 1, unique=False)
    second = added(there, 1, unique=False)
    for entry in (first, second):
        there.wrote(entry)
    there.acknowledged(there.take_due())
    assert added(there, 1, unique=False) is not None
    assert there.counts.written == 2


def test_a_message_that_came_from_the_target_is_not_copied_back() -> None:
    there = window()
    assert there.add(message(1, origin="kafka")) is None
    there.acknowledged(there.take_due())
    assert (there.counts.skipped, there.counts.written) == (1, 0)
    assert there.add(message(2, origin="sqs")) is not None


def test_a_result_that_comes_after_the_connection_was_lost_is_remembered_only() -> None:
    there = window()
    entry, other = added(there, 1), added(there, 2)
    there.lose()
    there.wrote(entry)
    there.failed(other, FAILED)
    assert there.take_due() == [] and there.take_failed() == []
    assert there.add(message(1)) is None, "it is written: acknowledge it only"
    assert there.add(message(2)) is not None
    assert add_up(there)


def test_the_oldest_ids_are_forgotten() -> None:
    there = window(remembered=2)
    for number in range(3):
        there.wrote(added(there, number))
    there.acknowledged(there.take_due())
    assert there.add(message(0)) is not None
    assert there.add(message(2)) is None


def test_writes_without_an_id_are_counted() -> None:
    there = window()
    plain = message(1)
    entry = there.add(type(plain)(body=b"", system="amqp", place="q"))
    assert entry is not None
    there.wrote(entry)
    assert there.counts.without_id == 1


@given(st.lists(st.tuples(st.sampled_from("abswflrt"), st.integers(0, 4)), max_size=60), st.booleans())
def test_counts_add_up_after_any_sequence_of_events(steps: list[tuple[str, int]], unique: bool) -> None:
    there = window(limit=3, remembered=2)
    writing: list[Entry] = []
    for action, number in steps:
        if action in "ab" and there.room:
            entry = there.add(message(number, unique=unique))
            writing += [] if entry is None else [entry]
        elif action == "w" and writing:
            there.wrote(writing.pop(0))
        elif action == "f" and writing:
            there.failed(writing.pop(), FAILED)
        elif action == "s":
            there.acknowledged(there.take_due())
        elif action == "r":
            there.released(there.take_failed())
        elif action == "t":
            failed = there.take_failed()
            there.retry(failed)
            writing += failed
        elif action == "l":
            there.lose()
        assert add_up(there)
        assert len(there) <= 3
        assert there.is_writing == any(not entry.is_lost for entry in writing)
