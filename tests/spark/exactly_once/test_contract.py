"""What Spark tells the writers of a Python data source, on which the sink is built.

`make spark-sink` asks the session of the tests. `make spark-contract` (SPARK_CONTRACT, a folder of PySpark
versions) asks each version on `local`, on `local-cluster` and on a standalone cluster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.exactly_once.contract_probe import run
from tests.telemetry.pipeline.clusters import standalone

pytestmark = [pytest.mark.process, pytest.mark.slow]

FOLDER = os.environ.get("SPARK_CONTRACT", "")
VERSIONS = sorted(path.name for path in Path(FOLDER).iterdir() if path.is_dir()) if FOLDER else []
PATIENCE_S = 900


def check(report: dict[str, Any], *, executors: bool | None, attempts: list[int]) -> None:
    """`executors`: whether tasks run in other JVMs than the driver; None if their parents are not JVMs.

    `attempts`: by partition.
    """
    driver = report["driver_jvm"] if executors is not None else 0
    stream, failing = report["stream"], report["failing"]
    checkpoint = json.loads((Path(stream["checkpoint"]) / "metadata").read_text())
    assert stream["query"] == checkpoint["id"], "a query has the id of its checkpoint"
    assert [(each["event"], each["batch"]) for each in stream["notes"]] == [("commit", 0), ("commit", 1)]
    seen = []
    for number, note in enumerate(stream["notes"]):
        assert note["jvm"] == driver, "commit runs on the driver"
        tasks = sorted(note["messages"], key=lambda task: int(task["partition"]))
        assert [task["partition"] for task in tasks] == [0, 1]
        assert [task["attempt"] for task in tasks] == attempts
        assert {task["batch"] for task in tasks} == {str(number)}
        assert {task["query"] for task in tasks} == {stream["query"]}
        assert {task["run"] for task in tasks} == {stream["run"]}, "the job group is the run"
        assert all((task["jvm"] != driver) is bool(executors) for task in tasks)
        assert note["token"] not in {task["token"] for task in tasks}, "commit has a writer of its own"
        seen += [task["task_attempt_id"] for task in tasks]
    assert len(set(seen)) == len(seen), "the id of a task attempt is its own"
    assert failing["error"], "the query fails with its batch"
    assert [(each["event"], each["batch"], each["jvm"]) for each in failing["notes"]] == [
        ("abort", 0, driver)
    ]
    assert failing["notes"][0]["messages"] == [None, None], "a failed task has no message"
    check_batch(report["batch"]["notes"], driver)


def check_batch(notes: list[dict[str, Any]], driver: int) -> None:
    (note,) = notes
    assert (note["event"], note["jvm"]) == ("commit", driver)
    assert {task["token"] for task in note["messages"]} == {note["token"]}, "a batch write has one writer"
    assert {(task["query"], task["batch"]) for task in note["messages"]} == {(None, None)}


@pytest.mark.skipif("SPARK_SINK" not in os.environ, reason="make spark-sink")
@pytest.mark.timeout(1200)
def test_a_session_in_one_process_keeps_the_contract(spark: SparkSession, tmp_path: Path) -> None:
    # The session of the tests forks its Python workers from a process of its own.
    check(run(spark, tmp_path, ""), executors=None, attempts=[0, 0])


@pytest.mark.skipif(not VERSIONS, reason="make spark-contract")
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("master", ["local[2,2]", "local-cluster[2,1,1024]", "standalone"])
@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_keeps_the_contract_on(master: str, version: str, tmp_path: Path) -> None:
    package = Path(FOLDER, version).resolve()
    home = tmp_path / "home"
    home.mkdir()
    for each in (package / "pyspark").iterdir():
        (home / each.name).symlink_to(each)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(package), str(Path.cwd())]),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    folder = tmp_path / "probe"
    folder.mkdir()
    with ExitStack() as stack:
        address = master
        if master == "standalone":
            address, _ = stack.enter_context(standalone(home, tmp_path, env, size=2))
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.exactly_once.contract_probe", address, str(folder)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
    assert done.returncode == 0, done.stdout[-5000:]
    report = json.loads((folder / "report.json").read_text())
    assert report["version"].startswith(version)
    check(report, executors=not master.startswith("local["), attempts=[0, 1])
