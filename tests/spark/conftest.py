"""One broker in memory for the tests of the data source, topics that no other test uses, and connectors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from pyspark.sql import SparkSession

from penstock.reading.connection import close_clusters
from penstock.testing import BrokerThread, broker
from tests.spark.connectors import Connector
from tests.spark.topics import Topics

_names = count()


@pytest.fixture(scope="session")
def running() -> Iterator[BrokerThread]:
    # Messages have timestamps of 1970, which retention would delete within minutes.
    config = {"log.cleaner.backoff.ms": "50", "log.retention.ms": "-1", "penstock.log.level": "warning"}
    with broker(config=config) as running:
        yield running
        close_clusters()


@pytest.fixture(scope="session")
def topics(running: BrokerThread) -> Topics:
    return Topics(running.bootstrap)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A topic of three partitions."""
    name = f"spark-{next(_names)}"
    topics.create(name, 3)
    return name


@pytest.fixture(params=["penstock", "kafka"])
def connector(
    request: pytest.FixtureRequest, spark: SparkSession, topics: Topics, kafka_connector_jars: str | None
) -> Connector:
    """Ours, and Spark's own."""
    if request.param == "kafka" and kafka_connector_jars is None:
        pytest.skip("Maven Central is not at hand for Spark's Kafka connector")
    return Connector(request.param, spark, topics.bootstrap)
