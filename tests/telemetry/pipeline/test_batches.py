"""Batches as foreachBatch gives them: what they leave in the tables, once, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.jobs.ledger import StateBroken
from penstock.jobs.storage import Store
from penstock.telemetry.pipeline.batches import Batches, BatchReport, PipelineEnded, Settings
from penstock.telemetry.pipeline.tables import TABLES, Tables
from penstock.telemetry.pipeline.tasks import ShardResult, ShardTask
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.in_process import run_here
from tests.telemetry.pipeline.messages import NOW_MS

CLOCK = NOW_MS + 3_600_000


def pipeline(
    place: Path,
    reports: list[BatchReport] | None = None,
    clock: int = CLOCK,
    scheme: str = "",
    settings: Settings | None = None,
) -> Batches:
    return Batches(
        f"{scheme}{place / 'tables'}",
        f"{scheme}{place / 'state'}",
        settings or Settings(load_thresholds(), shards=2),
        report=(reports if reports is not None else []).append,
        clock=lambda: clock,
        run_shards=run_here,
    )


def rows(place: Path, table: str) -> list[dict[str, Any]]:
    """What a table holds, in an order of its own."""
    found = Tables(str(place / "tables")).open(table).to_pyarrow_table().to_pylist()
    return sorted(found, key=repr)


def contents(place: Path) -> dict[str, list[str]]:
    """All that must be the same after any disturbance: everything but the clock's time of a batch."""
    kept: dict[str, list[str]] = {}
    for table in TABLES:
        found = [{name: row[name] for name in row if name != "read_at"} for row in rows(place, table)]
        kept[table] = sorted(repr(row) for row in found)
    return kept


def sample(at_s: int = 0, gpu: str = "GPU-1", field: int = 150, value: float = 40.0) -> dict[str, Any]:
    about: dict[str, str | None] = {
        "hostname": "host-1",
        "device": "nvidia0",
        "model": "H200",
        "job": "job-1",
    }
    about |= {"workload": "job-1", "pod": None, "namespace": "team"}
    measured = {"field": field, "at": NOW_MS + at_s * 1000, "value": value}
    return {"gpu_id": gpu, **measured, "reason": None, **about}


ENERGY, XID = 156, 230
FIRST = [
    sample(gpu="GPU-1", value=40.0),
    sample(gpu="GPU-22", value=50.0),
    sample(gpu="GPU-1", value=40.0),
    sample(gpu="GPU-1", field=ENERGY, value=1000.0),
    sample(gpu="GPU-1", field=XID, value=0.0),
    {"gpu_id": None, "reason": "not a sample", "raw": b"no sample"},
]
SECOND = [
    sample(100, value=42.0),
    sample(100, field=ENERGY, value=4000.0),
    sample(100, field=XID, value=79.0),
    sample(gpu="GPU-22", value=50.0),
]
THIRD = [sample(200, value=44.0), sample(5, gpu="GPU-22", value=50.0)]


def placed(rows: list[dict[str, Any]], first_offset: int = 0) -> list[dict[str, Any]]:
    return [{**row, "topic": "t", "partition": 0, "offset": at} for at, row in enumerate(rows, first_offset)]


def run(batches: Batches, first: int = 0) -> None:
    offset = 0
    for batch_id, values in enumerate((FIRST, SECOND, THIRD)):
        if batch_id >= first:
            batches.process(placed(values, offset), batch_id)
        offset += len(values)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables after a run that nothing has disturbed."""
    place = tmp_path_factory.mktemp("undisturbed")
    run(pipeline(place))
    return place


def test_every_message_is_somewhere(undisturbed: Path) -> None:
    kinds = ("consumed", "valid", "dead_lettered", "duplicates", "late")
    counted = {row["batch_id"]: tuple(row[kind] for kind in kinds) for row in rows(undisturbed, "batches")}
    assert counted == {0: (6, 4, 1, 1, 0), 1: (4, 3, 0, 1, 0), 2: (2, 1, 0, 0, 1)}
    assert len(rows(undisturbed, "samples")) == 8
    dead = {(row["reason"], row["offset"], row["raw"]) for row in rows(undisturbed, "dead_letters")}
    assert dead == {("not a sample", 5, b"no sample"), ("late", 11, None)}


def test_windows_close_behind_the_watermark(undisturbed: Path) -> None:
    # Batch 2 knows of NOW + 100 s, less 30 s of delay: what is older has closed.
    tens = {(row["gpu_id"], row["metric"], row["mean"]) for row in rows(undisturbed, "rollups_10s")}
    assert ("GPU-22", "DCGM_FI_DEV_GPU_TEMP", 50.0) in tens
    assert ("GPU-1", "DCGM_FI_DEV_GPU_TEMP", 40.0) in tens
    assert all(mean != 42.0 for _, _, mean in tens)
    assert {row["mean"] for row in rows(undisturbed, "rollups_1m")} == {40.0, 50.0, 1000.0, 0.0}


def test_a_clock_that_is_fast_does_not_make_others_late(tmp_path: Path) -> None:
    reports: list[BatchReport] = []
    batches = pipeline(tmp_path, reports)
    # All are accepted: it is not known yet which clock is wrong. Most of them are ahead of ours.
    fast = [sample(3600 + 250, gpu=gpu) for gpu in ("GPU-22", "GPU-333")]
    batches.process(placed([sample(3600), *fast]), 0)
    batches.process(placed([sample(3600 + 1)], 3), 1)
    assert [(report.counts.valid, report.counts.late) for report in reports] == [(3, 0), (1, 0)]
    assert reports[1].watermark_ms == CLOCK - 30_000


def test_nor_does_it_in_a_backfill(tmp_path: Path) -> None:
    """Then our own clock is far ahead of all samples, and says nothing of theirs."""
    reports: list[BatchReport] = []
    batches = pipeline(tmp_path, reports, clock=CLOCK + 86_400_000)
    fleet = [sample(gpu=f"GPU-{number}") for number in range(4)]
    batches.process(placed([*fleet, sample(7200, gpu="GPU-fast")]), 0)
    batches.process(placed([{**each, "at": each["at"] + 60_000} for each in fleet], 5), 1)
    batches.process(placed([sample(61)], 9), 2)
    assert [(report.counts.valid, report.counts.late) for report in reports] == [(5, 0), (4, 0), (1, 0)]
    assert [report.watermark_ms for report in reports] == [0, NOW_MS - 30_000, NOW_MS + 30_000]
    assert not any(report.alerts for report in reports), "no GPU is silent"


def test_rows_that_go_missing_fail_the_batch(tmp_path: Path) -> None:
    def loses_one(messages: list[Any], task: ShardTask) -> list[ShardResult]:
        first, second = run_here(messages[1:], task)
        return [first, second._replace(read=second.read + 1)]

    batches = pipeline(tmp_path)
    batches._run_shards = loses_one
    with pytest.raises(StateBroken, match="6 rows were read and 5 are accounted for"):
        batches.process(placed(FIRST), 0)
    assert Tables(str(tmp_path / "tables")).open("samples").to_pyarrow_table().num_rows == 0


def test_any_column_of_a_table_can_be_queried(undisturbed: Path) -> None:
    """Through deltalake's datasets, which pass over files by what their statistics say."""
    samples = Tables(str(undisturbed / "tables")).open("samples").to_pyarrow_dataset()
    assert samples.to_table(filter=pc.field("gpu_id") == "GPU-22").num_rows == 1
    assert samples.to_table(filter=pc.field("job").is_null()).num_rows == 0
    late = pc.field("at") >= pa.scalar((NOW_MS + 100_000) * 1000, pa.timestamp("us", "UTC"))
    assert samples.to_table(filter=late & (pc.field("value") < 43.0)).num_rows == 1


def test_alerts_are_in_the_table(undisturbed: Path) -> None:
    found = rows(undisturbed, "alerts")
    reported = {(row["rule"], row["subject"], row["state"], row["batch_id"]) for row in found}
    assert reported == {
        ("xid", "GPU-1", "open", 1),
        ("silent", "GPU-22", "open", 1),
        # Its host lacks it, a minute after that is known.
        ("missing_gpu", "host-1", "open", 2),
    }
    assert {row["action"][:16] for row in found if row["rule"] == "xid"} == {"drain and reboot"}


class Killed(Exception):
    """Stands for the end of the driver."""


def dies(function: Callable[..., Any], at_call: int, after: bool) -> Callable[..., Any]:
    """`function`, whose `at_call`th call ends the driver just before, or just after it."""
    calls = 0

    def deadly(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at_call and not after:
            raise Killed
        result = function(*args)
        if calls == at_call:
            raise Killed
        return result

    return deadly


@pytest.mark.parametrize(
    ("where", "method", "at_call", "after"),
    [
        # batch 1 commits samples, then batches, then its state and the manifest
        (Tables, "commit", 1, False),
        (Tables, "commit", 1, True),
        (Tables, "commit", 2, True),
        (Store, "write", 1, True),
        (Store, "write", 2, False),
        (Store, "write", 2, True),
    ],
)
def test_a_driver_that_dies_changes_nothing(
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: type,
    method: str,
    at_call: int,
    after: bool,
) -> None:
    pipeline(tmp_path).process(placed(FIRST), 0)
    broken = pipeline(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(where, method, dies(getattr(where, method), at_call, after))
        with pytest.raises(Killed):
            broken.process(placed(SECOND, len(FIRST)), 1)
    # Spark comes back with the batch that it does not know to be done, later by the clock.
    run(pipeline(tmp_path, clock=CLOCK + 1), first=1)
    assert contents(tmp_path) == contents(undisturbed)


@pytest.mark.parametrize("batch_id", [1, 2])
def test_a_batch_that_fails_in_a_live_driver_is_judged_from_the_state_before_it(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_id: int
) -> None:
    """The rules that compare GPUs have already seen it then."""
    batches = pipeline(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        commit = Batches._commit

        def failing(self: Batches, number: int, files: list[Any], transaction: str) -> None:
            if number == batch_id:
                raise OSError("no space")
            commit(self, number, files, transaction)

        patch.setattr(Batches, "_commit", failing)
        run(batches)
    run(batches, batch_id)
    assert contents(tmp_path) == contents(undisturbed)


def test_a_second_try_under_other_settings_is_the_same_batch(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline(tmp_path).process(placed(FIRST), 0)
    with monkeypatch.context() as patch:
        patch.setattr(Tables, "commit", dies(Tables.commit, 1, after=True))
        with pytest.raises(Killed):
            pipeline(tmp_path).process(placed(SECOND, len(FIRST)), 1)
    other = Settings(load_thresholds("xid: {for_s: 1000}"), shards=2, delay_ms=0, ahead_ms=0)
    pipeline(tmp_path, settings=other).process(placed(SECOND, len(FIRST)), 1)
    run(pipeline(tmp_path), first=2)
    assert contents(tmp_path) == contents(undisturbed)


def test_a_batch_that_another_version_began_is_refused(tmp_path: Path) -> None:
    batches = pipeline(tmp_path)
    (tmp_path / "state" / "begun-0.json").write_text('{"read_at_ms": 1}')
    with pytest.raises(StateBroken, match=r"begun-0\.json was written by another version"):
        batches.process(placed(FIRST), 0)


def test_a_batch_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    pipeline(tmp_path).process(placed(FIRST), 0)
    before = contents(tmp_path)
    reports: list[BatchReport] = []
    pipeline(tmp_path, reports).process(placed(SECOND), 0)
    assert contents(tmp_path) == before
    assert not reports


def test_tables_by_url_are_the_same(undisturbed: Path, tmp_path: Path) -> None:
    run(pipeline(tmp_path, scheme="file://"))
    assert contents(tmp_path) == contents(undisturbed)


def test_a_checkpoint_that_is_ahead_of_the_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateBroken, match="batch 3 comes after -1"):
        pipeline(tmp_path).process(placed(FIRST), 3)


def test_state_that_nothing_needs_is_removed(undisturbed: Path) -> None:
    names = {path.name.split("-")[0] for path in (undisturbed / "state").iterdir()}
    assert "0" not in names, "files of a batch that others have replaced"
    assert len([path for path in (undisturbed / "state").iterdir() if "pending" in path.name]) == 2


ROLLUPS = ("rollups_10s", "rollups_1m", "rollups_1h")


def counted(place: Path) -> list[int]:
    """By width of the windows: how many samples they hold."""
    return [sum(row["count"] for row in rows(place, table)) for table in ROLLUPS]


def test_closing_rolls_up_all_that_was_read(tmp_path: Path) -> None:
    batches = pipeline(tmp_path)
    run(batches)
    assert counted(tmp_path)[0] < 8
    batches.close()
    assert counted(tmp_path) == [8, 8, 8]
    with pytest.raises(PipelineEnded):
        batches.process(placed(THIRD), 3)
    # Nothing is left to close, and nothing is closed twice.
    pipeline(tmp_path).close()
    assert counted(tmp_path) == [8, 8, 8]
    assert len(rows(tmp_path, "batches")) == 3


def test_samples_after_a_closing_are_late_for_their_own_windows_only(tmp_path: Path) -> None:
    reports: list[BatchReport] = []
    batches = pipeline(tmp_path, reports)
    ahead = sample(3600, gpu="GPU-22")
    batches.process(placed([sample(0), sample(0, field=ENERGY, value=1.0), ahead]), 0)
    batches.close()
    batches = pipeline(tmp_path, reports)
    # A repetition, another one for the same window, and one for the next window.
    next_one = sample(10, field=ENERGY, value=5.0)
    batches.process(placed([sample(0), sample(1), sample(10), next_one, ahead], 3), 1)
    assert (reports[-1].counts.valid, reports[-1].counts.late) == (2, 3)
    batches.close()
    assert counted(tmp_path) == [5, 5, 5]
    # The counter was followed across the closing.
    assert [row["increase"] for row in rows(tmp_path, "rollups_1h") if row["field"] == ENERGY] == [0.0, 4.0]


@pytest.mark.parametrize(
    ("where", "method", "at_call", "after"),
    [
        (Store, "write", 1, True),  # its time
        (Tables, "commit", 1, True),
        (Tables, "commit", 3, True),
        (Store, "write", 2, False),  # the manifest
        (Store, "write", 2, True),
    ],
)
def test_a_closing_that_was_interrupted_is_completed_before_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: type, method: str, at_call: int, after: bool
) -> None:
    for place, dies_there in ((tmp_path / "a", False), (tmp_path / "b", True)):
        run(pipeline(place))
        closing = pipeline(place)
        if dies_there:
            with monkeypatch.context() as patch, pytest.raises(Killed):
                patch.setattr(where, method, dies(getattr(where, method), at_call, after))
                closing.close()
        else:
            closing.close()
        # The repetition would be taken again if its window were still open.
        last = pipeline(place, clock=CLOCK + 1)
        last.process(placed([sample(200, value=44.0), sample(300, value=1.0)], 12), 3)
        last.close()
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_windows_are_not_closed_while_a_batch_waits_for_its_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = pipeline(tmp_path)
    batches.process(placed(FIRST), 0)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Tables, "commit", dies(Tables.commit, 1, after=False))
        batches.process(placed(SECOND, len(FIRST)), 1)
    with pytest.raises(StateBroken, match="batch 1 was interrupted"):
        pipeline(tmp_path).close()
    repeating = pipeline(tmp_path)
    assert repeating.must_repeat()
    repeating.process(placed(SECOND, len(FIRST)), 1)
    assert not repeating.must_repeat()
    repeating.close()
