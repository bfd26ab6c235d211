"""Definitions are stored as JSON; what cannot be is refused with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.tables.definition import InvalidDefinition, decoded, encoded, parse_schema, split_place
from penstock.values.json_schema_types import NoColumns
from tests.tables.in_process import definition


def test_a_stored_definition_is_read_as_it_was(tmp_path: Path) -> None:
    table = definition(tmp_path, mode="upsert", schema="registry", registry="http://127.0.0.1:8081")
    assert decoded(encoded(table)) == table
    with pytest.raises(InvalidDefinition, match="cannot be read"):
        decoded(b"{}")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"to": "/lake/../home"}, "leads through"),
        ({"to": "s3://lake/a/../../b"}, "leads through"),
        ({"name": "../x"}, "cannot be the name of a table"),
        ({"id": "/../../x"}, "cannot be the id"),
        ({"registry": "http://ada:s3cret@r.example"}, "penstock table run --registry-config"),
        ({"schema": "json", "json_schema": "{"}, "cannot be read"),
    ],
)
def test_a_stored_definition_that_cannot_be_is_refused(tmp_path: Path, changes: Any, reason: str) -> None:
    """Whoever may write to the topic may have written it."""
    table = msgspec.structs.replace(definition(tmp_path), **changes)
    with pytest.raises(InvalidDefinition, match=reason) as raised:
        decoded(encoded(table))
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("to", "root", "folder"),
    [
        ("/data/orders", "/data", "orders"),
        ("/data/orders/", "/data", "orders"),
        ("s3://lake/orders", "s3://lake", "orders"),
        ("s3://lake/a/b", "s3://lake/a", "b"),
    ],
)
def test_a_place_is_a_folder_below_another(to: str, root: str, folder: str) -> None:
    assert split_place(to) == (root, folder)


@pytest.mark.parametrize(
    "to",
    [
        "orders",
        "s3://lake",
        "s3:///orders",
        "/",
        "",
        "data/orders",
        "/data/_orders",
        "/.x",
        "/a/../b",
        "/a/..",
    ],
)
def test_other_places_are_refused(to: str) -> None:
    with pytest.raises(InvalidDefinition):
        split_place(to)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("infer", ("infer", None)), ("registry", ("registry", None)), ("json:a.json", ("json", "a.json"))],
)
def test_schemas_that_are_known(text: str, parsed: Any) -> None:
    assert parse_schema(text) == parsed


@pytest.mark.parametrize("text", ["", "avro", "json", "json:", "infer:x", "registry:http://x"])
def test_other_schemas_are_refused(text: str) -> None:
    with pytest.raises(InvalidDefinition, match="is not infer, registry or json:FILE"):
        parse_schema(text)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": "registry"}, "--registry URL"),
        ({"key": "registry"}, "--registry URL"),
        ({"registry": "http://ada:s3cret@r.example"}, "set basic.auth.user.info in `penstock table run"),
        ({"registry": "nowhere"}, "--registry: 'nowhere' is not a URL"),
        ({"buckets": 0}, "--buckets 0"),
        ({"buckets": 5000}, "--buckets 5000"),
    ],
)
def test_definitions_that_cannot_be_are_refused(tmp_path: Path, changes: Any, reason: str) -> None:
    with pytest.raises(InvalidDefinition, match=reason):
        definition(tmp_path, **changes)


def test_a_json_schema_without_properties_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoColumns):
        definition(tmp_path, schema="json", json_schema='{"type": "string"}')


def test_the_state_of_a_table_lies_outside_of_its_folder(tmp_path: Path) -> None:
    table = definition(tmp_path)
    assert not table.state.startswith(table.folder)
    assert table.id[:8] in table.state
