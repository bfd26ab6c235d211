"""Recorded outcomes of Apache Kafka, and the differences that are intended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["DEVIATIONS", "RECORDED", "record", "recorded", "unexplained"]

RECORDED: Final = Path(__file__).with_name("kafka.json")
#: cases whose outcome differs from Kafka's on purpose, and the reason
DEVIATIONS: Final[Mapping[str, str]] = {}


def record(outcomes: Mapping[str, str]) -> None:
    RECORDED.write_text(json.dumps(dict(outcomes), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def recorded() -> dict[str, str]:
    """Kafka's outcome by the name of the case."""
    found: dict[str, str] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def unexplained(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, tuple[str, str | None]]:
    """The cases that differ without a reason."""
    return {
        name: (outcome, theirs.get(name))
        for name, outcome in ours.items()
        if outcome != theirs.get(name) and name not in DEVIATIONS
    }
