"""The trace of a run: a hash over all events, and lines about the important ones.

Two runs of one seed must have equal hashes on all machines and with every PYTHONHASHSEED. So no recorded
value may depend on memory addresses, hash order or real time, and neither may the choice of recorded events.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import Final

from penstock.ports import Buffer

__all__ = ["Trace"]

_STEP: Final = Struct(">dI")


class Trace:
    """Collects a run. Steps and bytes go into the hash alone, notes also into `lines`."""

    __slots__ = ("_hash", "lines", "steps")

    def __init__(self) -> None:
        self._hash = sha256()
        self.steps = 0
        self.lines: list[str] = []

    def step(self, now: float, what: int) -> None:
        """One event: when, and whose turn it was."""
        self.steps += 1
        self._hash.update(_STEP.pack(now, what))

    def data(self, data: Buffer) -> None:
        """Bytes that a process received."""
        self._hash.update(data)

    def note(self, now: float, who: str, what: str) -> None:
        line = f"{now:12.6f} {who:<10} {what}"
        self.lines.append(line)
        self._hash.update(line.encode())

    def digest(self) -> str:
        return self._hash.hexdigest()
