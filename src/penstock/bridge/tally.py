"""Counts the copies in a topic by their headers, for reconciliation."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from penstock.bridge.message import BRIDGE_ID, BRIDGE_SOURCE, header

__all__ = ["Tally"]


class Tally:
    """Records of a topic: all of them, and per source the copies, the different ids and those without one."""

    def __init__(self) -> None:
        self.records = 0
        self._copies: dict[str, int] = {}
        self._without_id: dict[str, int] = {}
        #: digests of 16 bytes, so that millions of ids fit into memory
        self._ids: dict[str, set[bytes]] = {}

    def add(self, headers: Iterable[tuple[str, bytes | None]]) -> None:
        self.records += 1
        found = list(headers)
        source = header(found, BRIDGE_SOURCE)
        if source is None:
            return
        self._copies[source] = self._copies.get(source, 0) + 1
        id_ = header(found, BRIDGE_ID)
        if id_ is None:
            self._without_id[source] = self._without_id.get(source, 0) + 1
        else:
            digest = blake2b(id_.encode(), digest_size=16).digest()
            self._ids.setdefault(source, set()).add(digest)

    def rows(self) -> list[dict[str, Any]]:
        """One row per source."""
        rows = []
        for source, copies in sorted(self._copies.items()):
            distinct, without = len(self._ids.get(source, ())), self._without_id.get(source, 0)
            rows.append(
                {
                    "source": source,
                    "copies": copies,
                    "distinct": distinct,
                    "duplicates": copies - distinct - without,
                    "without_id": without,
                }
            )
        return rows
