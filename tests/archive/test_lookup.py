from __future__ import annotations

import pytest

from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.lookup import entry_at, pages_from_time, place_of, position_bracket, start_of_time


def segment(base: int, next_: int, newest: int) -> SegmentEntry:
    return SegmentEntry(
        name=f"{base}.segment",
        size=20,
        sha256="",
        log_size=10,
        base_offset=base,
        next_offset=next_,
        min_timestamp=newest - 5,
        max_timestamp=newest,
        leader_epoch=0,
    )


def page(base: int, next_: int, newest: int) -> PageEntry:
    return PageEntry(
        name=f"{base}.page",
        size=20,
        sha256="",
        base_offset=base,
        next_offset=next_,
        max_timestamp=newest,
        segments=2,
        log_size=20,
    )


PAGES = [page(10, 30, 100), page(30, 50, 90)]
SEGMENTS = [segment(50, 60, 120), segment(60, 75, 130)]


def manifest(pages: list[PageEntry], segments: list[SegmentEntry], log_start: int = 10) -> Manifest:
    return Manifest(
        archive="a",
        topic="t",
        topic_id="",
        partition=0,
        writer="backup",
        number=0,
        previous="",
        id="",
        leader_epoch=0,
        written_ms=0,
        log_start_offset=log_start,
        pages=tuple(pages),
        segments=tuple(segments),
    )


@pytest.mark.parametrize("pages", [[], PAGES])
def test_each_offset_is_in_the_page_or_segment_that_covers_it(pages: list[PageEntry]) -> None:
    whole = manifest(pages, SEGMENTS)
    for offset in range(whole.base_offset, whole.next_offset):
        place = place_of(whole, offset)
        assert place is not None
        assert place.base_offset <= offset < place.next_offset
    assert place_of(whole, whole.base_offset - 1) is None
    assert place_of(whole, whole.next_offset) is None


def test_a_segment_of_a_page_is_found_by_its_offset() -> None:
    assert [entry_at(SEGMENTS, offset).base_offset for offset in (50, 59, 60, 74)] == [50, 50, 60, 60]


def test_a_timestamp_is_searched_in_all_places_that_may_have_it_above_the_log_start() -> None:
    """Timestamps of clients do not ascend: an earlier page may have later records."""
    whole = manifest(PAGES, SEGMENTS)
    assert [place.base_offset for place in pages_from_time(whole, 95)] == [10, 50, 60]
    assert [place.base_offset for place in pages_from_time(whole, 125)] == [60]
    assert pages_from_time(whole, 131) == []
    assert [place.base_offset for place in pages_from_time(manifest(PAGES, SEGMENTS, 30), 95)] == [50, 60]


def test_a_damaged_index_names_its_segment() -> None:
    with pytest.raises(ArchiveDamaged, match="offset index of the segment at 50 is damaged"):
        position_bracket(b"\1\2\3", 100, 50, 55)
    with pytest.raises(ArchiveDamaged, match="time index of the segment at 50 is damaged"):
        start_of_time(b"\1\2\3", 50, 7)
