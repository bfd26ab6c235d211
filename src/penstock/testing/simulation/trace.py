"""The trace of a run: a hash over all events, and lines about the important ones.

Two runs of one seed must have equal hashes on all machines and with every PYTHONHASHSEED. So no recorded
value may depend on memory addresses, hash order or real time, and neither may the choice of recorded events.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import Final

__all__ = ["Trace"]

_STEP: Final = Struct(">dI")
_SIZE: Final = Struct(">I")
_PARTS_MAX: Final = 1024


class Trace:
    """Collects a run. Steps and bytes go into the hash alone, notes also into `lines`."""

    __slots__ = ("_hash", "_parts", "is_encrypted", "lines", "steps")

    def __init__(self) -> None:
        self._hash = sha256()
        #: in order, and not in the hash yet: many small updates cost more than a large one
        self._parts: list[bytes] = []
        #: whether the bytes are ciphertext, which depends on random numbers of OpenSSL: sizes are hashed then
        self.is_encrypted = False
        self.steps = 0
        self.lines: list[str] = []

    def step(self, now: float, what: int) -> None:
        """One event: when, and whose turn it was."""
        self.steps += 1
        self._parts.append(_STEP.pack(now, what))

    def data(self, data: bytes) -> None:
        """Bytes that a process received."""
        self._parts.append(_SIZE.pack(len(data)) if self.is_encrypted else data)
        if len(self._parts) > _PARTS_MAX:
            self._update()

    def note(self, now: float, who: str, what: str) -> None:
        line = f"{now:12.6f} {who:<10} {what}"
        self.lines.append(line)
        self._parts.append(line.encode())

    def digest(self) -> str:
        self._update()
        return self._hash.hexdigest()

    def _update(self) -> None:
        self._hash.update(b"".join(self._parts))
        self._parts.clear()
