"""What the numbers that were read say about those that were sent. Without I/O."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["Count", "count", "last_said"]


class Count(NamedTuple):
    """How many of the numbers 0 to `sent` - 1 were read, not at all, or more than once."""

    sent: int
    read: int
    lost: int
    repeated: int
    unknown: int

    @property
    def adds_up(self) -> bool:
        """Whether each number was read once, and nothing else."""
        return self.sent > 0 and self.read == self.sent and not (self.lost or self.repeated or self.unknown)

    def __str__(self) -> str:
        rest = f"{self.lost} lost, {self.repeated} repeated, {self.unknown} unknown"
        return f"{self.read} of {self.sent} read, {rest}"


def count(sent: int, lines: Iterable[str]) -> Count:
    """Compare what was read with the numbers that were acknowledged."""
    found = Counter(line.strip() for line in lines if line.strip())
    expected = {str(number) for number in range(sent)}
    return Count(
        sent=sent,
        read=sum(found.values()),
        lost=len(expected - found.keys()),
        repeated=sum(times - 1 for text, times in found.items() if text in expected),
        unknown=sum(times for text, times in found.items() if text not in expected),
    )


def last_said(log: str) -> dict[str, Any]:
    """What the load said last; other lines are those of its libraries."""
    for line in reversed(log.splitlines()):
        if line.startswith("{") and line.endswith("}"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}
