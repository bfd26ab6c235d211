"""Requests that wait for more readable bytes: which are woken, and with how many bytes."""

from __future__ import annotations

from penstock.broker.replica.waiting_readers import A_LOT, WaitingReaders
from tests.broker.memory_partitions import batch, led


class Reader:
    """A waiting request."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def more(self, size: int) -> None:
        self.sizes.append(size)


def readers_of_a_led_partition() -> WaitingReaders:
    partition = led()
    partition.append(batch(3))
    return partition.readers


def test_a_reader_is_woken_until_it_leaves() -> None:
    readers, reader = readers_of_a_led_partition(), Reader()
    readers.join(reader)
    readers.wake(10)
    readers.wake(20)
    readers.leave(reader)
    readers.wake(30)
    assert (reader.sizes, len(readers)) == ([10, 20], 0)


def test_a_reader_may_leave_twice() -> None:
    readers, reader, other = readers_of_a_led_partition(), Reader(), Reader()
    readers.join(reader)
    readers.join(other, committed=True)
    readers.leave(reader)
    readers.leave(reader)
    assert len(readers) == 1


def test_a_reader_of_committed_records_is_not_woken_while_the_last_stable_offset_stands_still() -> None:
    readers, reader, committed = readers_of_a_led_partition(), Reader(), Reader()
    readers.join(reader)
    readers.join(committed, committed=True)
    readers.wake(10)
    assert (reader.sizes, committed.sizes) == ([10], [])


def test_a_reader_that_left_while_an_earlier_one_was_woken_is_not_woken() -> None:
    readers, gone, last = readers_of_a_led_partition(), Reader(), Reader()

    class Closing(Reader):
        def more(self, size: int) -> None:
            super().more(size)
            readers.leave(gone)

    closing = Closing()
    for reader in (closing, gone, last):
        readers.join(reader)
    readers.wake(10)
    assert (closing.sizes, gone.sizes, last.sizes) == ([10], [], [10])


def test_a_change_of_role_wakes_all_readers_with_more_bytes_than_any_waits_for() -> None:
    readers, reader, committed = readers_of_a_led_partition(), Reader(), Reader()
    readers.join(reader)
    readers.join(committed, committed=True)
    readers.wake_all()
    assert reader.sizes == committed.sizes == [A_LOT]
