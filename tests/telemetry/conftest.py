"""The tables that tests of queries, API and reports share. Nobody writes to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.telemetry.queries.reader import TableReader
from tests.telemetry.small_fleet import make_tables


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tables")
    make_tables(place)
    return place


@pytest.fixture(scope="session")
def reader(tables: Path) -> TableReader:
    return TableReader(str(tables))
