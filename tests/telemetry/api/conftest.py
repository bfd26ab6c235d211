"""The API over the small fleet's tables, without a network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from penstock.telemetry.api import build_app
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import load_thresholds


@pytest.fixture(scope="session")
def client(reader: TableReader) -> Iterator[TestClient]:
    with TestClient(build_app(reader, load_thresholds()), base_url="http://127.0.0.1") as client:
        yield client
