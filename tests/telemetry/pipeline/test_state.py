"""State that outlives its tasks: other numbers of tasks, and files that are added and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.jobs.ledger import StateBroken
from penstock.jobs.storage import Store
from penstock.telemetry.pipeline import gpus
from penstock.telemetry.pipeline.batches import Batches, Settings
from penstock.telemetry.pipeline.columns import (
    EVERYTHING,
    VIRTUAL_SHARDS,
    ShardRange,
    range_of_task,
    task_of_shard,
)
from penstock.telemetry.pipeline.state import Segment, StateFiles, inherited
from penstock.telemetry.pipeline.tables import TABLES, Tables
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.in_process import run_here
from tests.telemetry.pipeline.messages import NOW_MS

TEMPERATURE, ENERGY, XID = 150, 156, 230
GPUS = 12
STEP_S = 20
BATCHES = 8


def rows_of(batch: int) -> list[dict[str, Any]]:
    """Each batch repeats the last step of the one before, and has one that is out of order."""
    found = []
    for step in (batch * 2 + 1, batch * 2, batch * 2 - 1):
        for gpu in range(GPUS):
            about: dict[str, Any] = {"gpu_id": f"GPU-{gpu}", "hostname": f"host-{gpu // 4}"}
            about |= {"model": "H200", "job": "j"}
            about |= {"workload": "j", "pod": None, "namespace": None, "device": "d", "reason": None}
            at = NOW_MS + step * STEP_S * 1000
            values = {TEMPERATURE: 40.0 + gpu, ENERGY: 100.0 * step, XID: 79.0 if step > 9 else 0.0}
            found += [{**about, "field": field, "at": at, "value": each} for field, each in values.items()]
    first = batch * len(found)
    return [{**row, "topic": "t", "partition": 0, "offset": first + place} for place, row in enumerate(found)]


def pipeline(place: Path, tasks: int) -> Batches:
    settings = Settings(load_thresholds(), shards=tasks)
    return Batches(
        str(place / "tables"),
        str(place / "state"),
        settings,
        clock=lambda: NOW_MS + 3_600_000,
        run_shards=run_here,
    )


def run(place: Path, tasks: list[int], close: bool = True) -> dict[str, list[str]]:
    """A batch with each of these numbers of tasks, and all tables afterwards."""
    for batch, number in enumerate(tasks):
        pipeline(place, number).process(rows_of(batch), batch)
    if close:
        pipeline(place, tasks[-1]).close()
    tables = Tables(str(place / "tables"))
    return {name: sorted(map(repr, tables.open(name).to_pyarrow_table().to_pylist())) for name in TABLES}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return run(tmp_path_factory.mktemp("undisturbed"), [2] * BATCHES)


@pytest.mark.parametrize("tasks", [[1, 3, 3, 2, 7, 7, 1, 4], [5, 1, 5, 1, 5, 1, 5, 1]])
def test_the_number_of_tasks_may_change_from_batch_to_batch(
    undisturbed: dict[str, list[str]], tmp_path: Path, tasks: list[int]
) -> None:
    assert run(tmp_path, tasks) == undisturbed
    assert all(undisturbed[name] for name in TABLES if name != "dead_letters")


def test_virtual_shards_are_divided_without_a_rest() -> None:
    for tasks in (1, 2, 3, 7, 100, VIRTUAL_SHARDS):
        ranges = [range_of_task(task, tasks) for task in range(tasks)]
        assert [shard for each in ranges for shard in range(*each)] == list(range(VIRTUAL_SHARDS))
        assert all(
            task_of_shard(shard, tasks) == task for task, own in enumerate(ranges) for shard in range(*own)
        )


def test_a_file_is_inherited_in_parts_that_do_not_overlap() -> None:
    whole = [{"pending": [Segment("a", *EVERYTHING, starts=[10])]}]
    left = inherited(whole, ShardRange(0, 512))
    right = inherited(whole, ShardRange(512, 1024))
    assert left["pending"] == [Segment("a", 0, 512, False, [10])]
    # One of them has moved on; together they are not the whole file again.
    again = inherited([{"pending": [Segment("b", 0, 512)]}, right], EVERYTHING)
    assert again["pending"] == [Segment("b", 0, 512), Segment("a", 512, 1024, False, [10])]


def test_samples_of_open_windows_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = Store.write_batches

    def counted(self: Store, path: str, batches: Any) -> None:
        written.append(sum(batch.num_rows for batch in batches))
        write(self, path, batches)

    monkeypatch.setattr(Store, "write_batches", counted)
    tables = run(tmp_path, [1] * BATCHES, close=False)
    assert sum(written) == len(tables["samples"])
    # Of what has closed nothing is left: 30 s of delay, and two batches of 40 s that are not yet behind it.
    pending = [path for path in (tmp_path / "state").iterdir() if path.name.endswith("pending.arrow")]
    assert len(pending) <= 3


def test_state_of_an_older_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "manifest-3.json").write_text('{"query_id": "q", "batch_id": 3, "shards": {}}')
    with pytest.raises(StateBroken, match="older version"):
        pipeline(tmp_path, 2)


def test_gpus_of_a_version_without_places_are_read(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    known = gpus.GPUS.empty_table().drop_columns(["device", "pci_bus_id"])
    row = {"number": [0], "gpu_id": ["GPU-1"], "hostname": ["h"], "at": [1], "closed": [0]}
    columns = [row.get(each.name, pa.nulls(1, each.type)) for each in known.schema]
    older = pa.table(columns, schema=known.schema)
    store.write_table("old-gpus.arrow", older)
    files = StateFiles(store, EVERYTHING, {"gpus": [Segment("old-gpus.arrow", *EVERYTHING)]})
    read = files.load(None, 0).gpus
    assert read.schema == gpus.GPUS
    assert read.select(["gpu_id", "hostname", "device", "pci_bus_id"]).to_pylist() == [
        {"gpu_id": "GPU-1", "hostname": "h", "device": None, "pci_bus_id": None}
    ]
