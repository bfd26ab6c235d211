"""Opens data directories under test."""

from __future__ import annotations

from typing import Any

from penstock.ports import Files
from penstock.storage.directory import DataDirectory


class Counter:
    """Random enough for distinct ids."""

    def __init__(self) -> None:
        self.next = 0

    def token(self, size: int) -> bytes:
        self.next += 1
        return self.next.to_bytes(size, "big")

    def uniform(self, low: float, high: float) -> float:
        return low


RNG = Counter()


def opened(files: Files, **changes: Any) -> DataDirectory:
    settings: dict[str, Any] = {"cluster_id": "c", "node_id": 1} | changes
    return DataDirectory.open(files, "/data", rng=RNG, **settings)
