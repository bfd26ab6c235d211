"""Retention of the whole log, applied to what only the archive has."""

from __future__ import annotations

import pytest

from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.tiering.expiry import Expiry, archived_survey, budget_of, expired_until
from penstock.timekeeping.rounds import Survey


def segment(base: int) -> SegmentEntry:
    """Ten offsets, 100 bytes, the last record at the millisecond of the end offset."""
    return SegmentEntry(
        name=f"{base}", size=150, sha256="", log_size=100, base_offset=base, next_offset=base + 10,
        min_timestamp=base, max_timestamp=base + 10, leader_epoch=0,
    )  # fmt: skip


PAGE = PageEntry(
    name="page", size=1, sha256="", base_offset=0, next_offset=20, max_timestamp=20, segments=2, log_size=200
)
MANIFEST = Manifest(
    archive="a",
    topic="t",
    topic_id="",
    partition=0,
    writer="tier",
    number=1,
    previous="",
    id="",
    leader_epoch=0,
    written_ms=0,
    log_start_offset=0,
    pages=(PAGE,),
    segments=(segment(20), segment(30), segment(40)),
)
ENTRIES = (segment(0), segment(10))
LOCAL = 40


def expired(expiry: Expiry, local_size: int = 0, start: int = 0) -> int:
    budget, page = expired_until(
        MANIFEST.pages, budget_of(MANIFEST, start, LOCAL, local_size, expiry), LOCAL, expiry
    )
    places = MANIFEST.segments if page is None else ENTRIES
    return expired_until(places, budget, LOCAL, expiry)[0].start


@pytest.mark.parametrize(
    ("now_ms", "expected"), [(105, 0), (111, 10), (120, 10), (121, 20), (135, 30), (200, 40), (10_000, 40)]
)
def test_segments_go_by_their_largest_timestamp(now_ms: int, expected: int) -> None:
    assert expired(Expiry(100, -1, now_ms)) == expected


def test_nothing_goes_by_time_while_the_clock_is_not_trusted() -> None:
    assert expired(Expiry(100, -1, None)) == 0
    assert expired(Expiry(-1, -1, 10_000)) == 0


@pytest.mark.parametrize(
    ("retention_bytes", "local_size", "expected"),
    [(400, 0, 0), (399, 0, 0), (300, 0, 10), (400, 150, 10), (400, 200, 20), (0, 0, 40), (-1, 500, 0)],
)
def test_segments_go_by_the_size_of_both_tiers(retention_bytes: int, local_size: int, expected: int) -> None:
    assert expired(Expiry(-1, retention_bytes, 0), local_size) == expected


def test_records_below_the_log_start_do_not_count() -> None:
    assert expired(Expiry(-1, 200, 0), start=20) == 20
    assert expired(Expiry(-1, 100, 0), start=20) == 30


def test_records_that_were_too_old_when_the_clock_was_first_watched_are_counted() -> None:
    assert archived_survey(MANIFEST, 0, LOCAL, Expiry(100, -1, 0), 125) == Survey(400, 200)
    assert archived_survey(MANIFEST, 20, LOCAL, Expiry(100, -1, 0), 125) == Survey(200, 0)
    assert archived_survey(MANIFEST, 0, LOCAL, Expiry(-1, -1, 0), 125) == Survey()
