"""What all tests share: how Hypothesis runs, and what starts slowly: one Spark session, one Apache Kafka.

A JVM's class path is that of its start, so the jars of Spark's own Kafka connector are in the session from
the beginning, whichever test comes first.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes says more about what else the machine does than about what is tested.
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")


@pytest.fixture(scope="session")
def kafka_connector_jars() -> str | None:
    """Of Spark's own Kafka connector; None where Maven Central is not at hand."""
    from lab import LabError
    from lab.spark_kafka import spark_kafka_jars

    try:
        return spark_kafka_jars()
    except LabError:
        return None


@pytest.fixture(scope="session")
def spark(
    kafka_connector_jars: str | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        # Most of what these queries run is run once: optimising it takes longer than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        **({"spark.jars": kafka_connector_jars} if kafka_connector_jars else {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("penstock-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def real_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka, where Maven Central is at hand."""
    from lab import LabError
    from lab.apache_kafka import apache_kafka

    try:
        settings = {"num.partitions": "2", "group.initial.rebalance.delay.ms": "0"}
        server = apache_kafka(tmp_path_factory.mktemp("kafka"), settings)
    except LabError as e:
        pytest.skip(f"there is no Apache Kafka here: {e}")
    server.start()
    try:
        yield server.bootstrap
    finally:
        server.stop()
