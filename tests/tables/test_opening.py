"""Tables are made where nothing is, described as they are, and deleted as what they are."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.jobs.storage import Store
from penstock.tables.opening import TableExists, _places_above, delete_data, describe, make
from tests.tables.in_process import Message, definition, new_batches


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    """Vacuum would remove them."""
    table = definition(tmp_path)
    for folder in (table.folder, table.dead_letters):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "report.txt").write_text("mine")
        with pytest.raises(TableExists, match="there are files in"):
            make(table)
        (tmp_path / folder / "report.txt").unlink()
        (tmp_path / folder).rmdir()
    make(table)
    with pytest.raises(TableExists):
        make(table)


def test_of_two_commands_that_make_a_table_at_once_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has looked before there was a file."""
    table = definition(tmp_path)
    make(table)
    monkeypatch.setattr(Store, "names", lambda self, path: [])
    with pytest.raises(TableExists, match="another command has made it"):
        make(msgspec.structs.replace(table, name="other"))


@pytest.mark.parametrize("below", ["inner", "deep/er"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_place_below_another_table_is_refused(tmp_path: Path, below: str, scheme: str) -> None:
    """Vacuum of the outer table would remove it."""
    outer = definition(tmp_path)
    make(outer)
    inner = msgspec.structs.replace(outer, name="inner", to=f"{scheme}{outer.to}/{below}")
    with pytest.raises(TableExists, match=r"lies in the Delta table .*/orders,"):
        make(inner)
    assert not (tmp_path / "orders" / below).exists()
    beside = msgspec.structs.replace(inner, to=f"{scheme}{tmp_path}/other/inner")
    make(beside)
    assert describe(beside) is not None


def test_a_link_into_another_table_is_refused(tmp_path: Path) -> None:
    outer = definition(tmp_path)
    make(outer)
    (tmp_path / "orders" / "sub").mkdir()
    (tmp_path / "short").symlink_to(tmp_path / "orders" / "sub")
    with pytest.raises(TableExists, match="lies in the Delta table"):
        make(msgspec.structs.replace(outer, name="inner", to=str(tmp_path / "short" / "inner")))


def test_a_place_above_another_table_is_refused(tmp_path: Path) -> None:
    inner = definition(tmp_path / "lake")
    make(inner)
    with pytest.raises(TableExists, match="there are files in"):
        make(msgspec.structs.replace(inner, name="outer", to=str(tmp_path / "lake")))


def test_places_above_end_at_the_bucket() -> None:
    assert list(_places_above("s3://lake/a/b")) == ["s3://lake/a/b", "s3://lake/a", "s3://lake"]


def test_the_state_of_a_table(tmp_path: Path) -> None:
    table = definition(tmp_path)
    assert describe(table) is None
    running = new_batches(table)
    empty = describe(table)
    assert empty is not None
    assert (empty.rows, empty.batch_id, empty.freshness_s, empty.columns) == (0, None, None, {})
    running.process([Message(0, {"id": 1, "o": {"x": "y"}}), Message(1, b"{")], 0)
    full = describe(table)
    assert full is not None
    assert (full.rows, full.dead_letters, full.files, full.batch_id) == (1, 1, 1, 0)
    assert full.columns == {"id": "int64", "o": "struct<x: string>"}
    assert full.freshness_s is not None and full.freshness_s > 0


def test_deletion_leaves_the_files_of_others(tmp_path: Path) -> None:
    table = definition(tmp_path)
    new_batches(table).process([Message(0, {"id": 1})], 0)
    (tmp_path / "notes.txt").write_text("mine")
    delete_data(table)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_penstock", "notes.txt"]
    assert list((tmp_path / "_penstock").iterdir()) == []
    (tmp_path / table.folder).mkdir()
    (tmp_path / table.folder / "report.txt").write_text("mine")
    delete_data(table)
    assert (tmp_path / table.folder / "report.txt").exists()
