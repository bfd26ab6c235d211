"""Rows a second into Spark: our data source beside Spark's own Kafka connector, on the same broker.

Telemetry messages of 282 bytes in 4 partitions, a sink that takes rows and forgets them, `local[2]`. Both
connectors are measured in one Spark session, in turn, after a warm-up; the medians count. Typed means columns
out of the JSON values: decoded in our source, by `from_json` above Spark's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid

from confluent_kafka import Producer

from bench.load import topic
from bench.table import Contender, Metric, Row, Values
from lab.home import require
from lab.spark_kafka import spark_kafka_jars

MESSAGES = 2_000_000
GPUS = 256
TIMEOUT_S = 900
HEADERS = {"source": "streamer-1", "version": "1.0", "content-type": "application/json"}
LABELS = {"driver_version": "535.129.03", "model_name": "NVIDIA H100 80GB HBM3"}


def _spark(contender: Contender, scale: float) -> Values:
    require("java")
    jars = spark_kafka_jars()
    with topic(contender.server.bootstrap) as name:
        fill(contender.server.bootstrap, name, int(MESSAGES * scale))
        arguments = [contender.server.bootstrap, name, jars]
        done = subprocess.run(
            [sys.executable, "-m", "bench.spark_session", *arguments],
            stdout=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {
        **measured,
        "raw, against": measured["raw rows/s"] / measured["raw rows/s, JVM connector"],
        "typed, against": measured["typed rows/s"] / measured["typed rows/s, JVM connector"],
    }


def fill(bootstrap: str, name: str, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    gpus = [f"GPU-{uuid.UUID(int=number)}" for number in range(GPUS)]
    for number in range(count):
        gpu, value = gpus[number % GPUS], _message(number, gpus[number % GPUS])
        while True:
            try:
                producer.produce(name, value, key=gpu, headers=HEADERS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 2000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"not all of {count} messages were acknowledged")


def _message(number: int, gpu: str) -> bytes:
    message = {
        "timestamp": f"2025-07-18T20:{number // 60 % 60:02d}:{number % 60:02d}Z",
        "metric_name": "DCGM_FI_DEV_GPU_UTIL",
        "gpu_id": gpu,
        "device": f"nvidia{number % 8}",
        "hostname": f"mtv5-dgx1-hgpu-{number % 32:03d}",
        "value": float(number % 100),
        "labels": LABELS,
    }
    return json.dumps(message).encode()


ROWS = (
    Row(
        "spark",
        "Spark reads telemetry messages of 282 bytes with our data source, and with its Kafka connector",
        (
            Metric("raw rows/s", "", True),
            Metric("raw rows/s, JVM connector", "", True),
            Metric("raw, against", "× the JVM connector", True, limit=2),
            Metric("raw CPU per row", "µs", False),
            Metric("raw CPU per row, JVM connector", "µs", False),
            Metric("typed rows/s", "", True),
            Metric("typed rows/s, JVM connector", "", True),
            Metric("typed, against", "× from_json", True, limit=2),
            Metric("typed CPU per row", "µs", False),
            Metric("typed CPU per row, JVM connector", "µs", False),
        ),
        _spark,
        heavy=True,
        where=(
            "in Spark: rows cross from Python workers to the JVM as Arrow batches, and all columns do: "
            "Spark does not pass the columns of a query to a Python source."
        ),
    ),
)
