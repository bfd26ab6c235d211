"""Control batches in their layout, and the voter sets along a log."""

from __future__ import annotations

import pytest

from penstock.model.errors import CorruptMessage
from penstock.raft.control import leader_change_batch, observe_voters, voters_batch, whole_batches
from penstock.raft.messages import LogPoint
from penstock.raft.voters import VoterHistory, VoterSet
from penstock.records.batch import read_header
from penstock.records.control import ControlType, control_type
from penstock.records.record import Record, build_batch, iter_records
from tests.raft.memory_log import MemoryLog
from tests.raft.simulation import batch, voter

THREE = VoterSet(map(voter, (1, 2, 3)))
TWO = VoterSet(map(voter, (1, 2)))


def test_a_leader_change_is_a_control_batch_in_kafkas_layout() -> None:
    written = leader_change_batch(2, 4, THREE, {2, 3}, 5)
    assert read_header(written).is_control
    (record,) = iter_records(written)
    assert control_type(record.key) == ControlType.LEADER_CHANGE
    # version, leader, three voters, two that granted; compact arrays, and a tag section behind each structure
    ids = [b"\x00\x00\x00" + bytes([node, 0]) for node in (1, 2, 3)]
    expected = b"\x00\x00" + b"\x00\x00\x00\x02" + b"\x04" + b"".join(ids) + b"\x03" + b"".join(ids[1:])
    # One tagged field of ours: the epoch.
    assert record.value == expected + b"\x01" + b"\x90\x4e" + b"\x04" + b"\x00\x00\x00\x04"


def test_the_first_voters_record_says_that_voters_are_in_the_log() -> None:
    kinds = [control_type(record.key) for record in iter_records(voters_batch(THREE, 5, first=True))]
    assert kinds == [ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    kinds = [control_type(record.key) for record in iter_records(voters_batch(THREE, 5, first=False))]
    assert kinds == [ControlType.KRAFT_VOTERS]


def test_voters_are_found_again_in_a_log() -> None:
    log = MemoryLog()
    for data in (
        batch(b"x"),
        voters_batch(THREE, 0, first=True),
        batch(b"y"),
        voters_batch(TWO, 0, first=False),
    ):
        log.append(data, 1)
    history = log.history(VoterSet())
    assert (history.latest, history.latest_offset) == (TWO, 4)
    assert [history.at(offset) for offset in (0, 2, 3, 4, 5)] == [VoterSet(), VoterSet(), THREE, THREE, TWO]


def test_a_history_is_cut_at_both_ends() -> None:
    history = VoterHistory(VoterSet())
    history.add(3, THREE)
    history.add(7, TWO)
    history.start_at(7)
    assert history.at(7) == THREE, "a record at the start is not in the snapshot that ends there"
    history.truncate_to(7)
    assert (history.latest, history.latest_offset) == (THREE, 3)
    history.reset(9, TWO)
    assert (history.latest, history.latest_offset) == (TWO, 8)


def test_a_snapshot_without_voters_leaves_the_static_ones() -> None:
    history = VoterHistory(THREE)
    history.add(3, TWO)
    history.reset(9, None)
    assert (history.latest, history.latest_offset) == (THREE, -1)


def test_damaged_batches_are_seen() -> None:
    with pytest.raises(CorruptMessage, match="a batch of 12 bytes"):
        list(whole_batches(bytes(100)))
    assert list(whole_batches(batch(b"x")[:-1])) == []


def test_a_voters_record_that_cannot_be_read_is_damage() -> None:
    written = bytes(voters_batch(THREE, 0, first=False))
    (record,) = iter_records(written)
    assert record.value is not None
    cut = build_batch([Record(0, 0, record.key, record.value[:9])], control=True)
    with pytest.raises(CorruptMessage):
        observe_voters(VoterHistory(VoterSet()), cut)


def test_log_points_compare_by_epoch_first() -> None:
    assert LogPoint(2, 0) > LogPoint(1, 9) > LogPoint(1, 8)
