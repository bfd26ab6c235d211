"""Values by the schemas of a registry as one column of a fixed structure.

Readers need its type first: that of the latest schema of a subject, when a query is planned. Messages of
other schemas fit it or not. What does not fit, or is no value, keeps its bytes beside a null.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from penstock.model.errors import PenstockError
from penstock.registry.http import RegistryHttp
from penstock.registry.schemas import SchemaVersion, referenced
from penstock.registry.settings import RegistrySettings
from penstock.values.decoding import RegistryDecoder, Undecodable, columns_of
from penstock.values.fitting import fit

__all__ = ["NoStructure", "RegistryValues", "latest_columns"]


class NoStructure(PenstockError, ValueError):
    """A subject whose values are no objects."""


def latest_columns(settings: RegistrySettings, subject: str) -> Any:
    """The structure of the values of a subject, by its latest schema. Blocks.

    RegistryRefused if there is no such subject, RegistryUnreachable, NoStructure.
    """
    http = RegistryHttp(settings)
    found = http.get(SchemaVersion, f"/subjects/{quote(subject, safe='')}/versions/latest")
    columns = columns_of(found, referenced(http, found))
    if columns is None or not len(columns):
        raise NoStructure(f"the latest schema of {subject} is not of objects with fields")
    return columns


class RegistryValues:
    """Decodes values to one structure's type."""

    def __init__(self, kind: Any, settings: RegistrySettings) -> None:
        self.type = kind
        self._decoder = _decoder(settings)

    def decode(self, values: Any) -> tuple[Any, Any]:
        """The typed values, and the bytes of those that are not null and have no typed value."""
        raw = values.to_pylist()
        rows = [self._decoded(data) for data in raw]
        fitted = fit(rows, self.type)
        is_lost = [
            data is not None and (row is None or why is not None)
            for data, row, why in zip(raw, rows, fitted.reasons, strict=True)
        ]
        lost = [data if lost else None for data, lost in zip(raw, is_lost, strict=True)]
        return fitted.column, pa.array(lost, pa.binary())

    def _decoded(self, data: bytes | None) -> Mapping[str, Any] | None:
        if data is None:
            return None
        try:
            value = self._decoder.decode(data).value
        except Undecodable:
            return None
        return value if isinstance(value, dict) else None


@cache
def _decoder(settings: RegistrySettings) -> RegistryDecoder:
    """One for all tasks of a process: each fetches a schema once."""
    return RegistryDecoder(settings)
