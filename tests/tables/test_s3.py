"""Tables on a real server of S3, with Spark's checkpoint there as well: run by `make tables`."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lab.hadoop_aws import hadoop_aws_jars
from penstock.jobs import delta
from penstock.jobs.ledger import Ledger
from penstock.tables.definition import TableDefinition
from penstock.tables.opening import TableExists, delete_data, describe, make
from penstock.tables.plans import Plans
from tests.backup.stores import real_s3
from tests.tables.fed_tables import BATCH_ROWS, check, created, finished, penstock, run_again, run_options
from tests.tables.in_process import Message, new_batches, rows_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not os.environ.get("TABLE_KILLS"), reason="make tables"),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="Hadoop's client of S3 comes from Maven Central"),
]
PLACE = "s3://archive/lake"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the bucket. Tables and commands find the server in their environment."""
    with real_s3(tmp_path) as (_, environment):
        for name, text in environment.items():
            monkeypatch.setenv(name, text)
        yield tmp_path / "buckets" / "archive"


@pytest.fixture
def s3(bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same for Spark."""
    settings = {
        "spark.jars": hadoop_aws_jars(),
        "spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {text}\n" for key, text in settings.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    return bucket


def table_there(mode: Any) -> TableDefinition:
    place = f"{PLACE}/orders"
    made = TableDefinition(
        name="orders", id=uuid4().hex, topic="orders", to=place, mode=mode, schema="infer", buckets=3
    )
    return made.check()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_batches_on_s3_are_continued_described_and_deleted(bucket: Path, mode: str) -> None:
    table = table_there(mode)
    running = new_batches(table)
    for number in range(3):
        values = {"n": number, f"c{number}": 1}
        running.process(
            [Message(2 * number, values, f"k{number % 2}"), Message(2 * number + 1, b"{", "x")], number
        )
    new_batches(table, makes=False).process([Message(6, {"n": 9}, "k2")], 3)
    assert [row["n"] for row in rows_of(table.to)] == ([0, 1, 2, 9] if mode == "append" else [1, 2, 9])
    state = describe(table)
    assert state is not None
    assert (state.batch_id, state.dead_letters, [*state.columns]) == (3, 3, ["n", "c0", "c1", "c2"])
    with pytest.raises(TableExists, match="there are files in"):
        make(table)
    delete_data(table)
    assert not [path for path in (bucket / "lake").rglob("*") if path.is_file()]


def test_two_drivers_at_one_batch_on_s3_show_one_plan(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both commit the same version of the table: the store takes one of the two."""
    table = table_there("append")
    first, other = new_batches(table), new_batches(table, makes=False)
    add_columns = delta._add_columns

    def other_first(opened: Any, columns: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(delta, "_add_columns", add_columns)
            patched.setattr(Plans, "kept", lambda *_: None)
            patched.setattr(Ledger, "finish", lambda *_: None)
            other.process([Message(0, b"{"), Message(1, None)], 0)

    with monkeypatch.context() as patched:
        patched.setattr(delta, "_add_columns", other_first)
        first.process([Message(0, None), Message(1, b"{")], 0)
    assert [row["_offset"] for row in rows_of(table.to)] == [1]
    assert [row["offset"] for row in rows_of(f"{table.root}/{table.dead_letters}")] == [0]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_on_s3_has_each_message_once(s3: Path, mode: str) -> None:
    """A driver is killed between the commits of its two tables, and maintenance runs."""
    rng = random.Random(1)
    with created(PLACE, mode) as (bootstrap, fed):
        fed.feed(3 * BATCH_ROWS, rng)
        doomed = ("tests.telemetry.pipeline.doomed", "all", "0", "DeltaTables.show", "3")
        process = penstock(bootstrap, *run_options("orders"), program=doomed)
        output = finished(process)
        assert process.returncode == -signal.SIGKILL, output
        fed.feed(3 * BATCH_ROWS, rng)
        run_again(bootstrap, "--compact-every=2")
        check(PLACE, mode, fed)
        described = finished(penstock(bootstrap, "table", "describe", "orders"))
        assert f"dead_letters: {len(fed.dead)}" in described
        refused = finished(
            penstock(bootstrap, "table", "create", "more", "--topic=orders", f"--to={PLACE}/orders/in")
        )
        assert "lies in the Delta table" in refused
        process = penstock(bootstrap, "table", "delete", "orders", "--data", "--yes")
        output = finished(process)
        assert process.returncode == 0, output
    assert not [path for path in s3.rglob("*") if path.is_file()]
