from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.checkpoint import format_checked
from penstock.storage.epochs import LeaderEpochs


def history(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


def entries(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return list(zip(epochs.epochs, epochs.starts, strict=True))


def test_an_epoch_starts_once() -> None:
    assert entries(history((1, 0), (1, 5), (2, 9), (2, 9))) == [(1, 0), (2, 9)]


def test_epochs_that_contradict_a_new_one_are_forgotten() -> None:
    assert entries(history((1, 0), (2, 5), (3, 9), (4, 5))) == [(1, 0), (4, 5)]
    assert entries(history((1, 0), (2, 5), (3, 9), (2, 9))) == [(1, 0), (2, 9)]
    assert history((5, 0), (3, 10)).latest == 3


def test_no_epoch_is_no_entry() -> None:
    assert entries(history((-1, 0))) == []


def test_the_epoch_of_an_offset() -> None:
    epochs = history((1, 10), (3, 20))
    assert [epochs.epoch_of(offset) for offset in (9, 10, 19, 20, 99)] == [None, 1, 1, 3, 3]


def test_a_log_that_is_shortened_forgets() -> None:
    epochs = history((1, 0), (2, 10), (3, 20))
    epochs.forget_from(20)
    assert entries(epochs) == [(1, 0), (2, 10)]
    epochs.forget_before(15)
    assert entries(epochs) == [(2, 10)]
    epochs.forget_from(11)
    assert entries(epochs) == [(2, 10)]
    epochs.clear()
    assert (entries(epochs), epochs.latest) == ([], -1)


def test_only_changes_need_a_new_checkpoint() -> None:
    epochs = history((1, 0), (2, 10))
    epochs.dirty = False
    epochs.assign(2, 30)
    epochs.forget_from(11)
    epochs.forget_before(5)
    assert not epochs.dirty
    epochs.assign(3, 30)
    assert epochs.dirty


def test_the_checkpoint_is_kafkas_with_a_checksum() -> None:
    assert history((1, 0), (4, 17)).encode() == format_checked(["1 0", "4 17"])
    assert entries(LeaderEpochs.decode(b"0\n2\n1 0\n4 17\n")) == [(1, 0), (4, 17)]


def test_the_entries_of_a_part_of_the_log_are_restored() -> None:
    epochs = history((1, 0), (4, 17), (5, 20))
    assert epochs.within(0, 30) == [1, 0, 4, 17, 5, 20]
    assert epochs.within(17, 20) == [4, 17]
    assert epochs.within(16, 17) == [1, 0]
    assert epochs.within(30, 30) == [5, 20]
    assert epochs.within(20, 20) == [4, 17], "a leader that wrote nothing has no entry"
    assert LeaderEpochs().within(0, 5) == []
    restored = LeaderEpochs()
    restored.restore(epochs.within(18, 30))
    assert entries(restored) == [(4, 17), (5, 20)]
    assert (restored.latest, restored.dirty) == (5, True)


def test_any_flipped_bit_of_a_checkpoint_is_noticed() -> None:
    content = history((1, 0), (4, 17)).encode()
    for position in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(ValueError):
            LeaderEpochs.decode(bytes(damaged))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50))))
def test_a_checkpoint_brings_any_history_back(assigned: list[tuple[int, int]]) -> None:
    epochs = history(*assigned)
    assert entries(LeaderEpochs.decode(epochs.encode())) == entries(epochs)
    assert epochs.epochs == sorted(set(epochs.epochs))
    assert epochs.starts == sorted(set(epochs.starts))


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"1\n0\n",
        b"0\n",
        b"0\n2\n1 0\n",
        b"0\n1\n1 0",
        b"0\n1\nx y\n",
        b"0\n2\n2 0\n1 5\n",
        b"0\n2\n1 5\n2 5\n",
    ],
)
def test_a_damaged_checkpoint_is_noticed(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        LeaderEpochs.decode(damaged)
