from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.archive.documents import Manifest, Page, SegmentEntry, decode, digest
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.manifests import (
    PAGE_SEGMENTS,
    appended,
    check_follows,
    check_manifest,
    check_page,
    spill,
    trailing_run,
    trimmed,
)
from tests.archive.logs import chain, new_store


def entries(count: int, start: int = 0) -> list[SegmentEntry]:
    return [
        SegmentEntry(
            name=f"{n}.segment",
            size=20,
            sha256="",
            log_size=10,
            base_offset=start + 10 * n,
            next_offset=start + 10 * n + 10,
            min_timestamp=n,
            max_timestamp=n,
            leader_epoch=0,
        )
        for n in range(count)
    ]


def manifest_of(segments: Sequence[SegmentEntry]) -> Manifest:
    start = segments[0].base_offset if segments else 0
    return appended(chain(new_store()).first(start, 0, compacted=False), segments)


def test_the_oldest_segments_move_to_a_page() -> None:
    full = manifest_of(entries(288))
    assert spill(manifest_of(entries(287)), bytes(8)) is None
    spilled = spill(full, bytes(8))
    assert spilled is not None
    shorter = spilled.manifest
    assert (len(shorter.segments), len(shorter.pages)) == (32, 1)
    (page,) = shorter.pages
    assert (page.segments, page.base_offset, page.next_offset) == (PAGE_SEGMENTS, 0, 10 * PAGE_SEGMENTS)
    assert (page.size, page.sha256) == (len(spilled.data), digest(spilled.data))
    assert (shorter.base_offset, shorter.next_offset, shorter.log_size) == (0, 2880, 2880)
    check_manifest(shorter, "it")
    content = decode(spilled.data, Page, "it")
    check_page(content, page, shorter)
    with pytest.raises(ArchiveDamaged, match="another page"):
        check_page(msgspec.structs.replace(content, partition=9), page, shorter)
    with pytest.raises(ArchiveDamaged, match="hole at offset 10"):
        check_page(msgspec.structs.replace(content, segments=content.segments[::2]), page, shorter)


def test_segments_below_the_log_start_are_left_out() -> None:
    spilled = spill(manifest_of(entries(288)), bytes(8))
    assert spilled is not None
    assert len(trimmed(spilled.manifest, 2559).pages) == 1
    later = trimmed(spilled.manifest, 2565)
    assert (later.pages, later.log_start_offset, later.base_offset) == ((), 2565, 2560)
    check_manifest(later, "it")
    assert trimmed(later, 5) == later, "a log start never goes back"
    assert trimmed(later, 9999).next_offset == 9999


def test_a_hole_is_found() -> None:
    whole = entries(5)
    check_manifest(manifest_of(whole), "it")
    for broken in (whole[:2] + whole[3:], [*whole, whole[-1]], whole[::-1]):
        with pytest.raises(ArchiveDamaged, match="it has a hole"):
            check_manifest(manifest_of(broken), "it")
    outside = msgspec.structs.replace(manifest_of(whole), log_start_offset=51)
    with pytest.raises(ArchiveDamaged, match="log start 51"):
        check_manifest(outside, "it")


def test_a_manifest_follows_the_one_before_it() -> None:
    first = msgspec.structs.replace(manifest_of([]), number=4, leader_epoch=3)
    second = msgspec.structs.replace(first, number=5, previous="abc")
    check_follows(second, first, "abc", "it")
    for number, previous, epoch in ((6, "abc", 3), (5, "abd", 3), (5, "abc", 2)):
        wrong = msgspec.structs.replace(second, number=number, previous=previous, leader_epoch=epoch)
        with pytest.raises(ArchiveDamaged):
            check_follows(wrong, first, "abc", "it")


@pytest.mark.parametrize(
    ("sizes", "count"),
    [([], 0), ([5], 0), ([5, 5], 2), ([11, 5], 0), ([10, 5], 2), ([99, 18, 6, 3], 3), ([60, 50], 0)],
)
def test_small_segments_at_the_end_are_merged(sizes: list[int], count: int) -> None:
    assert trailing_run(sizes, 100) == count


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=300))
def test_merges_leave_few_small_segments_and_copy_little(sizes: list[int]) -> None:
    kept: list[int] = []
    copied = 0
    for size in sizes:
        kept.append(size)
        count = trailing_run(kept, 10**9)
        if count:
            merged = sum(kept[-count:])
            copied += merged
            kept[-count:] = [merged]
    assert len(kept) <= 2 + sum(sizes).bit_length()
    assert copied <= sum(sizes) * (2 + sum(sizes).bit_length())
