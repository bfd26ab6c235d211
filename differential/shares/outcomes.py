"""Recorded outcomes of Apache Kafka, and the differences that are intended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["DEVIATIONS", "RECORDED", "record", "recorded", "unexplained"]

RECORDED: Final = Path(__file__).with_name("kafka.json")
#: cases whose outcome differs from Kafka's on purpose, and the reason
_INTERNAL: Final = "Kafka fails with an internal error"
_SILENT: Final = "Kafka does not answer"
_DELETED: Final = "a state that does not exist is deleted"
DEVIATIONS: Final[Mapping[str, str]] = {
    "ShareFetch: an unknown topic id": _INTERNAL,
    "ShareFetch: a topic id of zeros": _INTERNAL,
    "ShareFetch: negative bytes": _INTERNAL,
    "ShareFetch: an unknown acquire mode": _INTERNAL,
    "ShareFetch: acknowledges in an unknown topic": _INTERNAL,
    "ShareFetch: acknowledges in a topic with an id of zeros": _INTERNAL,
    "administration: altering offsets of a negative partition": _INTERNAL,
    "administration: describing offsets of an unknown partition": _SILENT,
    "state: writing a lower start offset": "a late write does not take back a start offset",
    "state: deleting in an unknown topic": _DELETED,
    "state: deleting an unknown partition": _DELETED,
}


def record(outcomes: Mapping[str, str]) -> None:
    """Record outcomes, without those of cases that could not be prepared."""
    found = {name: outcome for name, outcome in outcomes.items() if not outcome.startswith("not prepared")}
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def recorded() -> dict[str, str]:
    """Kafka's outcome by the name of the case."""
    found: dict[str, str] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


def unexplained(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The recorded cases that differ without a reason."""
    return {
        name: (outcome, theirs[name])
        for name, outcome in ours.items()
        if name in theirs and outcome != theirs[name] and name not in DEVIATIONS
    }
