from __future__ import annotations

import pytest

from penstock.archive.names import (
    BACKUP,
    TIER,
    candidates_name,
    candidates_time_ms,
    cut_name,
    cut_time_ms,
    manifest_number,
    object_name,
    parse_partition,
)
from tests.archive.logs import OWNER

FOLDER = "topics/orders/AAECAwQFBgcICQoLDA0ODw/3/"


def test_names_of_a_partition() -> None:
    assert OWNER.folder == FOLDER
    assert OWNER.manifest(BACKUP, 7) == f"{FOLDER}backup/00000000000000000007.manifest"
    assert OWNER.manifests(TIER) == f"{FOLDER}tier/"
    name = object_name(12, 5, b"\x01" * 8, "segment")
    assert name == "00000000000000000012-5-0101010101010101.segment"
    assert parse_partition(OWNER.object(name)) == (OWNER, name)


@pytest.mark.parametrize(
    "name",
    [
        "archive.json",
        "topics/a/b/0/x",
        f"{FOLDER[:-1]}",
        "cuts/a/b/c/d",
        "topics/a b/AAECAwQFBgcICQoLDA0ODw/3/x",
    ],
)
def test_other_names_are_of_no_partition(name: str) -> None:
    assert parse_partition(name) is None


@pytest.mark.parametrize(
    ("name", "number"),
    [(OWNER.manifest(BACKUP, 10**12), 10**12), ("backup/7.manifest", None), ("x.segment", None)],
)
def test_the_number_of_a_manifest(name: str, number: int | None) -> None:
    assert manifest_number(name) == number


@pytest.mark.parametrize("time_ms", [0, 1_794_913_265_007, 1_794_913_265_999])
def test_names_of_cuts_have_their_time(time_ms: int) -> None:
    assert cut_time_ms(cut_name(time_ms, bytes(8))) == time_ms


def test_names_of_cuts_sort_by_time() -> None:
    assert cut_name(999, b"\xff" * 8) < cut_name(1000, bytes(8)) < cut_name(10**12, bytes(8))
    assert cut_time_ms("cuts/99999999T999999.000Z-0000000000000000.cut") is None
    assert candidates_name(0, bytes(8)) == "collections/19700101T000000.000Z-0000000000000000.candidates"
    assert candidates_time_ms(candidates_name(1_794_913_265_999, bytes(8))) == 1_794_913_265_999
    assert candidates_time_ms(cut_name(0, bytes(8))) is None
