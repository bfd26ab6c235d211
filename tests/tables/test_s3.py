"""Tables on a real server of S3, with Spark's checkpoint there as well: run by `make tables`."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hadoop_aws import hadoop_aws_jars
from tests.backup.stores import real_s3
from tests.tables.fed_tables import BATCH_ROWS, check, created, finished, penstock, run_again, run_options

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not os.environ.get("TABLE_KILLS"), reason="make tables"),
    pytest.mark.skipif(shutil.which("mvn") is None, reason="Hadoop's client of S3 comes from Maven Central"),
]
PLACE = "s3://archive/lake"


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the bucket. Commands and Spark find the server in their environment."""
    jars = hadoop_aws_jars()
    with real_s3(tmp_path) as (_, environment):
        settings = {
            "spark.jars": jars,
            "spark.hadoop.fs.s3a.endpoint": environment["AWS_ENDPOINT_URL"],
            "spark.hadoop.fs.s3a.endpoint.region": environment["AWS_REGION"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": environment["AWS_ACCESS_KEY_ID"],
            "spark.hadoop.fs.s3a.secret.key": environment["AWS_SECRET_ACCESS_KEY"],
        }
        conf = tmp_path / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(
            "".join(f"{key} {text}\n" for key, text in settings.items())
        )
        monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
        for name, text in environment.items():
            monkeypatch.setenv(name, text)
        yield tmp_path / "buckets" / "archive"


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
