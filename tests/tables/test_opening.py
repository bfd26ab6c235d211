"""Tables are made where nothing is, described as they are, and deleted as what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.tables.opening import TableExists, delete_data, describe, make
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
