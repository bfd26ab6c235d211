"""Records what Spark tells the writers of a data source: `python -m tests.spark.exactly_once.contract_probe`.

It uses only PySpark, and of that only what 4.0 has, so it runs on every version that has Python data sources.
Arguments: the master, a folder for its files. It writes the report as JSON to `report.json` there.

The stream has two batches of two files, one task per file. The first attempt of one task raises, then the
whole second stream fails, so that `abort` is seen, too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

__all__ = ["ProbeSource", "run"]

_QUERY_ID: Final = "sql.streaming.queryId"
_RUN_ID: Final = "spark.jobGroup.id"
_BATCH_ID: Final = "streaming.sql.batchId"


def nearest_jvm(pid: int) -> int:
    """The nearest Java process above a process; 0 if there is none."""
    while pid > 1:
        status = Path(f"/proc/{pid}/stat").read_text()
        name, rest = status[status.index("(") + 1 :].rsplit(")", 1)
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    return 0


@dataclass
class Facts(WriterCommitMessage):
    """What a task attempt knows about itself."""

    facts: dict[str, Any] = field(default_factory=dict)


def _write(rows: Iterator[Any], options: dict[str, str], token: str) -> Facts:
    written = sorted(str(row.value) for row in rows)
    task = TaskContext.get()
    assert task is not None
    facts = {
        "partition": task.partitionId(),
        "attempt": task.attemptNumber(),
        "task_attempt_id": task.taskAttemptId(),
        "batch": task.getLocalProperty(_BATCH_ID),
        "query": task.getLocalProperty(_QUERY_ID),
        "run": task.getLocalProperty(_RUN_ID),
        "jvm": nearest_jvm(os.getpid()),
        "rows": written,
        "token": token,
    }
    doomed = options.get("doomed", "")
    if doomed == "always" or (doomed == "once" and facts["partition"] == 1 and facts["attempt"] == 0):
        raise RuntimeError("the probe was asked to fail")
    return Facts(facts)


def _note(options: dict[str, str], event: str, messages: list[Any], **fields: Any) -> None:
    noted = {
        "event": event,
        "jvm": nearest_jvm(os.getpid()),
        "messages": [message and message.facts for message in messages],
        **fields,
    }
    (Path(options["notes"]) / f"{time.time_ns()}.json").write_text(json.dumps(noted))


class _StreamWriter(DataSourceStreamWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.token = uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Facts:
        return _write(iterator, self.options, self.token)

    def commit(self, messages: list[Any], batchId: int) -> None:
        _note(self.options, "commit", messages, batch=batchId, token=self.token)

    def abort(self, messages: list[Any], batchId: int) -> None:
        _note(self.options, "abort", messages, batch=batchId, token=self.token)


class _BatchWriter(DataSourceWriter):
    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.token = uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Facts:
        return _write(iterator, self.options, self.token)

    def commit(self, messages: list[Any]) -> None:
        _note(self.options, "commit", messages, token=self.token)

    def abort(self, messages: list[Any]) -> None:
        _note(self.options, "abort", messages, token=self.token)


class ProbeSource(DataSource):
    """`format("contract-probe")`."""

    @classmethod
    def name(cls) -> str:
        return "contract-probe"

    def schema(self) -> str:
        return "value string"

    def writer(self, schema: Any, overwrite: bool) -> _BatchWriter:
        return _BatchWriter(dict(self.options))

    def streamWriter(self, schema: Any, overwrite: bool) -> _StreamWriter:
        return _StreamWriter(dict(self.options))


def _stream(spark: SparkSession, folder: Path, name: str, doomed: str) -> dict[str, Any]:
    """Two batches of two files each, to their end or to their failure."""
    notes, rows = folder / name, folder / f"{name}-rows"
    notes.mkdir()
    rows.mkdir()
    for number in range(4):
        (rows / f"{number}.txt").write_text(f"{number}\n")
        os.utime(rows / f"{number}.txt", (number, number))
    read = spark.readStream.option("maxFilesPerTrigger", 2).text(str(rows))
    writer = read.writeStream.format("contract-probe").option("notes", str(notes)).option("doomed", doomed)
    checkpoint = str(folder / f"{name}-checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    try:
        query.awaitTermination(300)
    except Exception as e:  # noqa: BLE001 - the version decides which; the report has it
        error = str(e)
    else:
        error = ""
    return {
        "query": query.id,
        "run": query.runId,
        "checkpoint": checkpoint,
        "error": error,
        "notes": _noted(notes),
    }


def _batch(spark: SparkSession, folder: Path, doomed: str) -> dict[str, Any]:
    notes = folder / "batch"
    notes.mkdir()
    rows = spark.range(4, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("contract-probe").option("notes", str(notes)).option("doomed", doomed)
    writer.mode("append").save()
    return {"notes": _noted(notes)}


def _noted(notes: Path) -> list[Any]:
    return [json.loads(path.read_text()) for path in sorted(notes.glob("*.json"))]


def run(spark: SparkSession, folder: Path, doomed: str) -> dict[str, Any]:
    """What the writers of one session see; with `doomed` "once", the first attempt of a task fails."""
    spark.dataSource.register(ProbeSource)
    spark.createDataFrame([], "value string")
    jvm = int(spark._jvm.ProcessHandle.current().pid())  # type: ignore[union-attr]
    return {
        "version": spark.version,
        "driver_jvm": jvm,
        "stream": _stream(spark, folder, "stream", doomed),
        "failing": _stream(spark, folder, "failing", "always"),
        "batch": _batch(spark, folder, doomed),
    }


def main() -> None:
    master, folder = sys.argv[1], Path(sys.argv[2])
    builder = SparkSession.builder.master(master).appName("contract-probe")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.local.dir": str(folder / "local"),
        "spark.executor.memory": "512m",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        (folder / "report.json").write_text(json.dumps(run(spark, folder, "once")))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
