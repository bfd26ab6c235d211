"""`python -m tests.spark.exactly_once.copying BOOTSTRAP MASTER FOLDER SOURCE TARGET [DOOM]`: copies a topic.

A stream with the exactly-once sink that runs until it is killed, or with DOOM until it meets it (`doomed`).
FOLDER has the checkpoint. Speculation is on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.exactly_once.doomed import DoomedSource

__all__ = ["ROWS_PER_BATCH", "main"]

ROWS_PER_BATCH = int(os.environ.get("SINK_BATCH", "400"))


def session(master: str, folder: Path) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "50ms",
        "spark.task.maxFailures": "20",
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    builder = SparkSession.builder.master(master).appName("sink-kills")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def main(bootstrap: str, master: str, folder: str, source: str, target: str, doom: str = "never:0") -> None:
    place = Path(folder)
    spark = session(master, place)
    spark.dataSource.register(DoomedSource)
    read = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    read = read.option("subscribe", source).option("startingOffsets", "earliest")
    rows = read.option("maxOffsetsPerTrigger", ROWS_PER_BATCH).load().select("key", "value", "partition")
    writer = rows.writeStream.format("doomed-penstock").option("kafka.bootstrap.servers", bootstrap)
    writer = writer.option("topic", target).option("delivery", "exactly_once").option("doom", doom)
    writer = writer.option("marker", str(place / f"doom-{doom}".replace(":", "-")))
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
