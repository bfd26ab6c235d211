from __future__ import annotations

import pytest

from penstock.archive import segment_object
from penstock.archive.building import LogState, SegmentBuilder, owner_of
from penstock.archive.checking import check_segment, sections_of
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.segment_object import parse_table
from penstock.storage.transactions import ABORTED_ENTRY
from tests.archive.logs import OWNER, batch, log_of, marker, sealed


def sections(data: bytearray) -> dict[str, bytes]:
    return sections_of(memoryview(data), parse_table(data, len(data), "it"), "it")


def test_producers_epochs_and_aborted_transactions_go_with_the_segment() -> None:
    entry, data = sealed(
        [
            batch(0, 2, producer_id=7, transactional=True, epoch=1),
            batch(2, 1, epoch=1),
            batch(3, 1, producer_id=8, transactional=True, epoch=4),
            marker(4, 7, committed=False),
            marker(5, 8, committed=True),
            batch(6, 3, producer_id=7, transactional=True, sequence=2, epoch=4),
        ]
    )
    found = sections(data)
    aborted = list(ABORTED_ENTRY.iter_unpack(found[segment_object.TRANSACTION_INDEX]))
    assert aborted == [(0, 7, 0, 4, 3)]
    state = LogState.decode(
        entry.next_offset,
        found[segment_object.EPOCHS],
        found[segment_object.PRODUCERS],
        owner_of(OWNER),
    )
    assert (state.epochs.epochs, state.epochs.starts) == ([1, 4], [0, 3])
    assert state.producers.ongoing == {6: 7}
    assert state.producers.states[7].last_sequence == 4
    assert entry.leader_epoch == 4
    assert (entry.min_timestamp, entry.max_timestamp) == (1000, 1008)


def test_the_state_goes_on_over_segments() -> None:
    """A transaction that starts in one segment and is aborted in the next one."""
    state = LogState(0)
    first = SegmentBuilder(OWNER, state)
    first.append(batch(0, 2, producer_id=7, transactional=True), "it")
    first.seal(0, bytes(8))
    second = SegmentBuilder(OWNER, state)
    second.append(marker(2, 7, committed=False), "it")
    entry, data = second.seal(0, bytes(8))
    assert list(ABORTED_ENTRY.iter_unpack(sections(data)[segment_object.TRANSACTION_INDEX])) == [
        (0, 7, 0, 2, 3)
    ]
    assert (entry.base_offset, entry.next_offset) == (2, 3)


def test_missing_offsets_are_counted() -> None:
    builder = SegmentBuilder(OWNER, LogState(0))
    builder.append(batch(3), "it")
    builder.append(batch(10, 2), "it")
    builder.cover(15)
    entry, data = builder.seal(0, bytes(8))
    assert (entry.base_offset, entry.next_offset, entry.missing) == (0, 15, 3 + 6 + 3)
    check_segment(data, entry, OWNER, None)


@pytest.mark.parametrize(
    "wrong",
    [
        batch(1),
        batch(5)[:-1],
        batch(5)[:40],
        batch(5)[:16] + b"\x01" + batch(5)[17:],
        batch(5)[:-1] + b"\xff",
    ],
)
def test_wrong_batches_are_refused(wrong: bytes) -> None:
    builder = SegmentBuilder(OWNER, LogState(2))
    builder.append(batch(2, 3), "it")
    size = len(builder.log)
    with pytest.raises(ArchiveDamaged, match=r"^it has "):
        builder.append(wrong, "it")
    assert len(builder.log) == size and builder.next_offset == 5


def test_a_segment_takes_batches_up_to_its_size() -> None:
    builder = SegmentBuilder(OWNER, LogState(0))
    first, second = log_of(0, 2)
    assert builder.takes(10**9, 1, 1)
    builder.append(first, "it")
    assert builder.takes(len(second), 3, len(first) + len(second))
    assert not builder.takes(len(second), 3, len(first) + len(second) - 1)
    assert not builder.takes(1, 2**31, 10**9)
