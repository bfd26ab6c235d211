"""The code on the page about Spark runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.topics import Topics

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_examples_run(spark: SparkSession, topics: Topics, topic: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (streaming,) = (block for block in blocks if "gpu-telemetry" in block)
    (typing,) = (block for block in blocks if "valueSchema" in block)
    names: dict[str, Any] = {"spark": spark}
    exec(streaming.replace("localhost:9092", topics.bootstrap).replace("gpu.telemetry", topic), names)
    assert names["rows"].isStreaming
    assert names["rows"].columns[:3] == ["key", "value", "topic"]

    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", topics.bootstrap)
    names["reader"] = reader.option("subscribe", topic)
    exec(typing, names)
    columns = ["offset", "gpu_id", "value"]
    assert names["typed"].select("offset", "value.gpu_id", "value.value").columns == columns
