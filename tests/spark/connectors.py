"""Both connectors behind one face: ours and Spark's own, which is the judge of what ours should do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["REFUSED", "Connector", "Stream", "as_plain", "numbers", "offsets_json"]

#: How a query ends that is refused or fails; what Java throws in a task comes as it is.
REFUSED = (PySparkException, Py4JJavaError)

_PATIENCE_S = 300
_TRIES: Final = 4
_NOT_STARTED: Final = "Python worker failed to connect back"


@dataclass(frozen=True)
class Connector:
    """`format(name)` in one Spark session, on one cluster."""

    name: str
    spark: SparkSession
    bootstrap: str

    @property
    def is_ours(self) -> bool:
        return self.name == "penstock"

    def read(self, topic: str | None = None, **options: str) -> DataFrame:
        return self.spark.read.format(self.name).options(**self._reported(topic, options)).load()

    def stream(self, topic: str | None = None, **options: str) -> DataFrame:
        return self.spark.readStream.format(self.name).options(**self._reported(topic, options)).load()

    def write(self, rows: DataFrame, **options: str) -> None:
        self._activate()
        rows.write.format(self.name).options(**self._reported(None, options)).mode("append").save()

    def write_stream(self, rows: DataFrame, checkpoint: Path, **options: str) -> StreamingQuery:
        """What a query has, until its end."""
        self._activate()
        writer = rows.writeStream.format(self.name).options(**self._reported(None, options))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(_PATIENCE_S)
        return query

    def _activate(self) -> None:
        """Make the session that of this thread, which py4j may have changed since.

        Spark looks there, and nowhere else, for sources in Python that are written to.
        """
        self.spark.createDataFrame([], "value string")

    def _reported(self, topic: str | None, options: dict[str, str]) -> dict[str, str]:
        """In the names of options, `__` stands for `.`."""
        named = {"subscribe": topic} if topic is not None else {}
        reported = {name.replace("__", "."): value for name, value in options.items()}
        return {"kafka.bootstrap.servers": self.bootstrap} | named | reported


class Stream:
    """A query over one checkpoint. It keeps the values of each batch, as numbers, in order."""

    def __init__(self, rows: DataFrame, checkpoint: Path) -> None:
        self.batches: list[list[int]] = []
        values = rows.selectExpr("CAST(CAST(value AS STRING) AS INT) AS number")
        self._writer = values.writeStream.foreachBatch(self._take).option(
            "checkpointLocation", str(checkpoint)
        )

    def start(self) -> StreamingQuery:
        """Until it is stopped, batch after batch as soon as there is something."""
        return self._writer.trigger(processingTime="0 seconds").start()

    def run(self) -> list[list[int]]:
        """Read to the end: the batches of this run.

        Spark gives a Python worker ten seconds to start, which a loaded machine may exceed. A query that
        failed for that alone, before its first batch, runs again.
        """
        for left in reversed(range(_TRIES)):
            self.batches.clear()
            try:
                assert self._writer.trigger(availableNow=True).start().awaitTermination(_PATIENCE_S)
                break
            except StreamingQueryException as error:
                if _NOT_STARTED not in str(error) or self.batches or not left:
                    raise
        return list(self.batches)

    def _take(self, rows: DataFrame, _: int) -> None:
        self.batches.append(sorted(row.number for row in rows.collect()))


def numbers(rows: DataFrame) -> list[int]:
    """The values of a batch query, which are numbers, in order."""
    return sorted(int(row.value) for row in rows.select("value").collect())


def offsets_json(topic: str, *at: int) -> str:
    """By partition, as options have it; a time will do as well."""
    return str({topic: {str(partition): offset for partition, offset in enumerate(at)}}).replace("'", '"')


def as_plain(row: Any) -> tuple[Any, ...]:
    """A row in Python's own types, to compare."""
    return tuple(_plain(column) for column in row)


def _plain(column: Any) -> Any:
    if isinstance(column, bytearray):
        return bytes(column)
    if isinstance(column, list):
        return [as_plain(each) for each in column]
    return column
