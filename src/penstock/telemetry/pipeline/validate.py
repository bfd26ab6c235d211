"""Stage 1: which messages are samples. Every row goes on, with a reason if it is none.

A reason is one of `REASONS`; null means valid. Whatever a field is called, it goes on by its number.
"""

from __future__ import annotations

import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.telemetry.fields import FIELDS, FIRST_BLANK, FieldType

__all__ = ["REASONS", "ROW_DDL", "VALUE_SCHEMA", "validate"]

#: The message's JSON as the connector reads it. Labels that no table has a column for are left out.
VALUE_SCHEMA: Final = (
    "timestamp STRING, metric_name STRING, gpu_id STRING, device STRING, hostname STRING, value DOUBLE, "
    "labels STRUCT<model_name: STRING, job: STRING, namespace: STRING>"
)
#: What `validate` gives: one row for each message.
ROW_DDL: Final = (
    "gpu_id STRING, field INT, at BIGINT, value DOUBLE, hostname STRING, device STRING, model STRING, "
    "job STRING, namespace STRING, reason STRING, topic STRING, partition INT, offset BIGINT, raw BINARY"
)

REASONS: Final = (
    "not a sample",
    "no GPU",
    "unknown metric",
    "no time",
    "from the future",
    "no value",
    "blank",
    "out of range",
)
_ZONED: Final = r"(Z|z|[+-]\d\d:\d\d)$"


def _known_fields(spark: SparkSession) -> DataFrame:
    rows = [
        (name, each.id, float(FIRST_BLANK[FieldType(each.type)]), float(each.low), float(each.high))
        for each in FIELDS.values()
        for name in (each.name, *each.aliases)
    ]
    return spark.createDataFrame(rows, "name STRING, field INT, first_blank DOUBLE, low DOUBLE, high DOUBLE")


def validate(messages: DataFrame, now_ms: int, ahead_ms: int) -> DataFrame:
    """Rows of `ROW_DDL` from rows of the connector with `VALUE_SCHEMA` and the values' bytes.

    A sample from more than `ahead_ms` after `now_ms` is refused: it would move the watermark past all others.
    """
    known = _known_fields(messages.sparkSession)
    joined = messages.join(F.broadcast(known), F.col("value.metric_name") == F.col("name"), "left")
    text = F.col("value.timestamp")
    moment = F.when(text.rlike(_ZONED), F.try_to_timestamp(text))
    typed = joined.withColumn("at", F.unix_millis(moment))
    reason = _reason(now_ms + ahead_ms)
    return typed.select(
        F.col("value.gpu_id").alias("gpu_id"),
        F.col("field"),
        F.col("at"),
        F.col("value.value").alias("value"),
        F.col("value.hostname").alias("hostname"),
        F.col("value.device").alias("device"),
        F.col("value.labels.model_name").alias("model"),
        F.col("value.labels.job").alias("job"),
        F.col("value.labels.namespace").alias("namespace"),
        reason.alias("reason"),
        F.col("topic"),
        F.col("partition"),
        F.col("offset"),
        # The bytes are only of use where they end as a dead letter.
        F.when(reason.isNotNull(), F.col("raw")).alias("raw"),
    )


def _reason(latest_ms: int) -> Column:
    value = F.col("value.value")
    verdicts = (
        F.col("value").isNull(),
        F.coalesce(F.col("value.gpu_id"), F.lit("")) == "",
        F.col("field").isNull(),
        F.col("at").isNull(),
        F.col("at") > latest_ms,
        value.isNull() | F.isnan(value),
        value >= F.col("first_blank"),
        (value < F.col("low")) | (value > F.col("high")),
    )
    reason = F.lit(None).cast("string")
    for text, verdict in reversed(list(zip(REASONS, verdicts, strict=True))):
        reason = F.when(verdict, text).otherwise(reason)
    return reason


def now_ms() -> int:
    """The time that a batch gets; the only clock of the pipeline."""
    return int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
