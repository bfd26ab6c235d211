"""Values of a registry as one column of a fixed structure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from penstock.client import Registry as Client
from penstock.registry.http import RegistryRefused
from penstock.registry.settings import RegistrySettings, registry_settings
from penstock.values.typed import NoStructure, RegistryValues, latest_columns
from tests.console.registry_server import Registry, registry_server

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WITH_ITEM = {**ORDER, "fields": [*ORDER["fields"], {"name": "item", "type": "string", "default": "?"}]}
COLUMNS = pa.struct([("id", pa.int64()), ("item", pa.string())])


@pytest.fixture
def registry() -> Iterator[Registry]:
    with registry_server() as running:
        yield running


def settings_of(registry: Registry) -> RegistrySettings:
    return registry_settings({}, registry.url)


def test_the_latest_schema_of_a_subject_has_the_columns(registry: Registry) -> None:
    registry.add("orders-value", ORDER)
    registry.add("orders-value", WITH_ITEM)
    assert latest_columns(settings_of(registry), "orders-value") == COLUMNS


def test_subjects_without_columns_are_refused(registry: Registry) -> None:
    registry.add("texts-value", '"string"')
    with pytest.raises(NoStructure, match="texts-value is not of objects"):
        latest_columns(settings_of(registry), "texts-value")
    with pytest.raises(RegistryRefused):
        latest_columns(settings_of(registry), "nothing-value")


def test_values_of_other_schemas_fit_or_keep_their_bytes(registry: Registry) -> None:
    old = Client(registry.url).avro("orders-value", ORDER).encode({"id": 1})
    new = Client(registry.url).avro("orders-value", WITH_ITEM).encode({"id": 2, "item": "tea"})
    other = Client(registry.url).json("others-value", schema={"type": "object"}).encode({"id": "text"})
    scalar = Client(registry.url).json("others-value", schema={"type": "object"}).encode(5)
    raw = [old, new, None, b"plain", other, scalar]
    typed, lost = RegistryValues(COLUMNS, settings_of(registry)).decode(pa.array(raw, pa.binary()))
    assert typed.to_pylist() == [{"id": 1, "item": None}, {"id": 2, "item": "tea"}, None, None, None, None]
    assert lost.to_pylist() == [None, None, None, b"plain", other, scalar]
