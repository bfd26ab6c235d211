"""The tables that tests of queries, API and reports share (read only), and a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.telemetry.queries.reader import TableReader
from tests.telemetry.small_fleet import make_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tables")
    make_tables(place)
    return place


@pytest.fixture(scope="session")
def reader(tables: Path) -> TableReader:
    return TableReader(str(tables))


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    """One of its own: what the pipeline registers in it stays unknown to tests that must do without."""
    return spark.newSession()
