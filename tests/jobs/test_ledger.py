"""The state of a query is written by one driver, and what later batches keep stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.jobs.ledger import Ledger, StateBroken
from penstock.jobs.storage import Store


def test_finish_removes_plans_and_files_of_earlier_batches_alone(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    ledger = Ledger(store)
    ledger.begin(-1, b"first")
    for name in (
        "plan-0.json",
        "plan-1.json",
        "plan-12.json",
        "begun-2.json",
        "1-a.arrow",
        "3-b.arrow",
        "closing-7.json",
    ):
        store.write(name, b"")
    ledger.finish(1, b"second", {"closing-7.json"})
    assert store.names("") == [
        "3-b.arrow",
        "begun-2.json",
        "closing-7.json",
        "manifest-1.json",
        "plan-12.json",
    ]
    ledger.finish(2, b"third", set())
    assert store.names("") == ["3-b.arrow", "manifest-2.json", "plan-12.json"]


def test_finish_refuses_a_manifest_of_another_driver(tmp_path: Path) -> None:
    stalled, other = (Ledger(Store(str(tmp_path))) for _ in range(2))
    stalled.begin(-1, b"first")
    assert other.newest() == b"first"
    stalled.check_held()
    other.finish(0, b"of the other", set())
    for ends in (stalled.check_held, lambda: stalled.finish(0, b"mine", set())):
        with pytest.raises(StateBroken, match="stop all but one of this query"):
            ends()
    assert (tmp_path / "manifest-0.json").read_bytes() == b"of the other"
    other.finish(1, b"next", set())
