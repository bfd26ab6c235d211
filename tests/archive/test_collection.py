from __future__ import annotations

import pytest

from penstock.archive.collection import GRACE_MS, candidates, collectable, deletable
from penstock.archive.names import BACKUP
from penstock.ports import StoredObject
from tests.archive.logs import OWNER

SEGMENT = OWNER.object("00000000000000000000-0-0000000000000000.segment")
OTHER = OWNER.object("00000000000000000000-0-0000000000000001.segment")
LISTING = [StoredObject(SEGMENT, 5, 100), StoredObject(OTHER, 6, 100)]
LATER = 100 + GRACE_MS


def test_objects_that_no_document_names_are_deleted_after_a_grace_period() -> None:
    earlier = candidates(LISTING, {OTHER})
    assert [each.name for each in earlier.objects] == [SEGMENT]
    assert deletable(earlier, 100, LISTING, {OTHER}, LATER) == [SEGMENT]


@pytest.mark.parametrize(
    ("earlier_ms", "listing", "named", "now_ms"),
    [
        (101, LISTING, {OTHER}, LATER),  # the first listing is too young
        (100, LISTING, {OTHER}, 99),  # the time of the store has gone back
        (100, LISTING, {SEGMENT, OTHER}, LATER),  # a document names it now
        (100, [], {OTHER}, LATER),  # it is not there any more, or the listing is late
        (100, [StoredObject(SEGMENT, 5, 101)], {OTHER}, LATER + 1000),  # it was written again
        (100, [StoredObject(SEGMENT, 4, 100)], {OTHER}, LATER),
    ],
)
def test_unproven_garbage_stays(
    earlier_ms: int, listing: list[StoredObject], named: set[str], now_ms: int
) -> None:
    earlier = candidates(LISTING, {OTHER})
    assert deletable(earlier, earlier_ms, listing, named, now_ms) == []


def test_an_object_that_only_the_second_listing_has_stays() -> None:
    earlier = candidates(LISTING[1:], set())
    assert deletable(earlier, 100, LISTING, set(), LATER) == [OTHER]


@pytest.mark.parametrize(
    ("name", "may_go"),
    [
        (SEGMENT, True),
        (OWNER.object("x.page"), True),
        (OWNER.manifest(BACKUP, 3), True),
        ("archive.json", False),
        ("cuts/20260101T000000.000Z-0000000000000000.cut", False),
        ("collections/x.candidates", False),
        (OWNER.object("notes.txt"), False),
        ("topics/orders/no-id/0/x.segment", False),
        ("somebody-elses/x.segment", False),
    ],
)
def test_only_objects_of_partitions_are_deleted(name: str, may_go: bool) -> None:
    assert collectable(name) == may_go
    assert len(candidates([StoredObject(name, 1, 1)], set()).objects) == may_go
