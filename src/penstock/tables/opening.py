"""Makes, describes and deletes the Delta tables of a definition."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from penstock.jobs.delta import AlreadyThere, DeltaTables
from penstock.jobs.ledger import Ledger
from penstock.jobs.storage import Store
from penstock.model.errors import PenstockError
from penstock.tables.definition import TableDefinition
from penstock.tables.layout import dead_letters_layout, fields_of, layout_of

__all__ = ["TableExists", "TableState", "delete_data", "describe", "make"]


class TableExists(PenstockError):
    """There are files where a table should be."""


class TableState(NamedTuple):
    """A table as it is now."""

    version: int
    rows: int
    files: int
    size_bytes: int
    dead_letters: int
    #: of the last batch; None before the first
    batch_id: int | None
    #: from the newest message in the table to now
    freshness_s: float | None
    columns: dict[str, str]


def make(definition: TableDefinition, storage_options: dict[str, str] | None = None) -> None:
    """Make the table and that of its dead letters; TableExists if their places have files, or lie in a table.

    Why: vacuum removes files that are not the table's, and that of an outer table those of all tables below.
    """
    store = Store(definition.root, storage_options)
    for folder in (definition.folder, definition.dead_letters):
        if store.names(folder):
            raise TableExists(
                f"there are files in {definition.root}/{folder}: choose another place, or delete them"
            )
    for above in _places_above(definition.root):
        if _is_table(above, storage_options):
            raise TableExists(
                f"{definition.to} lies in the Delta table {above}, whose vacuum would remove it: "
                "choose a place outside of it"
            )
    tables = DeltaTables(definition.root, storage_options)
    try:
        tables.make(layout_of(definition, _first_columns(definition)))
        tables.make(dead_letters_layout(definition))
    except AlreadyThere as error:
        raise TableExists(f"{error}: another command has made it") from error


def _places_above(root: str) -> Iterator[str]:
    """A place and those that contain it, up to the bucket or `/`; with links and without."""
    scheme, separator, path = root.partition("://")
    if not separator:
        own = Path(root)
        yield from dict.fromkeys(map(str, (own, *own.parents, own.resolve(), *own.resolve().parents)))
        return
    while path:
        yield f"{scheme}://{path}"
        path = path.rpartition("/")[0]


def _is_table(place: str, storage_options: dict[str, str] | None) -> bool:
    """Whether a place is known to be a Delta table. Where nothing may be listed, nothing is known."""
    try:
        return bool(Store(place, storage_options).names("_delta_log"))
    except OSError:
        return False


def _first_columns(definition: TableDefinition) -> Any:
    """The columns that a table has before its first row."""
    if definition.json_schema is None:
        return pa.struct([])
    from penstock.tables.layout import RESERVED
    from penstock.values.json_schema_types import json_schema_columns
    from penstock.values.types import added

    return added(pa.struct([]), json_schema_columns(msgspec.json.decode(definition.json_schema)), RESERVED)


def describe(definition: TableDefinition, storage_options: dict[str, str] | None = None) -> TableState | None:
    """The table as it is now; None if there is none."""
    tables = DeltaTables(definition.root, storage_options)
    opened = tables.find(definition.folder)
    if opened is None:
        return None
    files = pa.table(opened.get_add_actions(flatten=True))
    dead = tables.find(definition.dead_letters)
    ledger = Ledger(Store(f"{definition.root}/{definition.state}/state", storage_options))
    text = ledger.newest()
    manifest: dict[str, Any] = {} if text is None else msgspec.json.decode(text)
    batch_id, newest_ms = manifest.get("batch_id", -1), manifest.get("newest_ms", 0)
    return TableState(
        version=opened.version(),
        rows=_rows(opened),
        files=len(files),
        size_bytes=sum(files["size_bytes"].to_pylist()),
        dead_letters=0 if dead is None else _rows(dead),
        batch_id=batch_id if batch_id >= 0 else None,
        freshness_s=max(0.0, time.time() - newest_ms / 1000) if newest_ms else None,
        columns={field.name: str(field.type) for field in fields_of(opened.schema().to_arrow())},
    )


def _rows(opened: DeltaTable) -> int:
    return sum(pa.table(opened.get_add_actions())["num_records"].to_pylist())


def delete_data(definition: TableDefinition, storage_options: dict[str, str] | None = None) -> None:
    """Delete the table, its dead letters and its state. Only folders that are Delta tables are deleted."""
    store = Store(definition.root, storage_options)
    tables = DeltaTables(definition.root, storage_options)
    for folder in (definition.folder, definition.dead_letters):
        if tables.find(folder) is not None:
            store.delete(folder)
    if store.names(definition.state):
        store.delete(definition.state)
