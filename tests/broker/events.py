"""The log events of brokers under test."""

from __future__ import annotations

from typing import Any

__all__ = ["Events"]


class Events:
    """Everything that was logged since the test began: (level, event, fields)."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str, dict[str, Any]]] = []

    def add(self, level: str, event: str, **fields: Any) -> None:
        self.all.append((level, event, fields))

    def of(self, event: str) -> list[tuple[str, dict[str, Any]]]:
        """(level, fields) of each occurrence of `event`."""
        return [(level, fields) for level, name, fields in self.all if name == event]
