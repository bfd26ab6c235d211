"""Committed offsets of a group: what is taken over from the source."""

from __future__ import annotations

from penstock.linking.committed import Committed, GroupMirror
from penstock.model.ids import TopicPartition

KEY = TopicPartition("orders", 0)


def due(mirror: GroupMirror, source: int, here: int | None, end: int | None) -> int | None:
    own = {} if here is None else {KEY: here}
    found = mirror.due({KEY: Committed(source, "m")}, own, {} if end is None else {KEY: end})
    mirror.committed(found)
    return found[KEY].offset if found else None


def test_no_offset_is_beyond_the_mirrored_end() -> None:
    mirror = GroupMirror()
    assert due(mirror, 100, None, 80) == 80
    assert due(mirror, 100, 80, 90) == 90
    assert due(mirror, 100, 90, 200) == 100
    assert due(mirror, 100, 100, 200) is None


def test_a_partition_that_is_not_mirrored_is_left_out() -> None:
    assert due(GroupMirror(), 100, None, None) is None


def test_a_group_that_goes_back_at_the_source_goes_back_here() -> None:
    mirror = GroupMirror()
    assert due(mirror, 50, None, 80) == 50
    assert due(mirror, 20, 50, 80) == 20


def test_an_offset_of_a_reader_here_stays() -> None:
    mirror = GroupMirror()
    assert due(mirror, 50, None, 80) == 50
    assert due(mirror, 60, 75, 80) is None
    assert mirror.foreign({KEY: 75}) == 1


def test_an_unknown_offset_is_only_moved_forward() -> None:
    """After a restart it is not known whether a reader has committed it."""
    assert due(GroupMirror(), 50, 60, 80) is None
    mirror = GroupMirror()
    assert due(mirror, 70, 60, 80) == 70
    assert due(mirror, 65, 70, 80) == 65
