"""The schemas that readers have fetched by their numbers. Schemas never change, so each is fetched once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from penstock.registry.http import RegistryHttp, RegistryRefused
from penstock.registry.schemas import SchemaVersion

__all__ = ["MissingSchema", "SchemaCache", "checked_kind"]

#: schemas that are kept, and how long one counts as missing
_SCHEMAS_MAX: Final = 1000
_MISSING_S: Final = 60.0


class MissingSchema(ValueError):
    """The registry has no schema with a number."""


class SchemaCache:
    """Schemas by their number. A missing one is asked for again after a minute. Owned by one thread."""

    def __init__(self, http: RegistryHttp, clock: Callable[[], float] = time.monotonic) -> None:
        self._http = http
        self._clock = clock
        self._known: dict[int, SchemaVersion] = {}
        self._missing: dict[int, float] = {}

    def of_kind(self, number: int, kind: str) -> SchemaVersion:
        """The schema with a number; ValueError if it is of another kind."""
        return checked_kind(self.find(number), kind, f"schema {number}")

    def find(self, number: int) -> SchemaVersion:
        """The schema with a number. Blocks if it was not fetched before.

        MissingSchema, or RegistryRefused the first time, if the registry has none; RegistryUnreachable.
        """
        found = self._known.get(number)
        if found is not None:
            return found
        missing_since = self._missing.get(number)
        if missing_since is not None and self._clock() - missing_since < _MISSING_S:
            raise MissingSchema(f"the schema registry has no schema {number}")
        return self._fetched(number)

    def _fetched(self, number: int) -> SchemaVersion:
        if len(self._known) + len(self._missing) >= _SCHEMAS_MAX:
            self._known.clear()
            self._missing.clear()
        try:
            found = self._known[number] = self._http.get(SchemaVersion, f"/schemas/ids/{number}")
        except RegistryRefused as e:
            if e.status == 404:
                self._missing[number] = self._clock()
            raise
        self._missing.pop(number, None)
        return found


def checked_kind(found: SchemaVersion, kind: str, what: str) -> SchemaVersion:
    """The schema if it is of a kind; `what` is its name in the error."""
    if found.kind != kind:
        raise ValueError(f"{what} is {found.kind}, not {kind}")
    return found
