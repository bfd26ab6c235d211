"""How long clients wait at most until a leader that is silent is replaced, by its fault, in seconds."""

from __future__ import annotations

from typing import Final

__all__ = ["WITHIN_S"]

#: a deaf one is heard for longer: its heartbeat of the next half second still arrives
WITHIN_S: Final = {"hangs": 3.5, "is cut off": 3.5, "is mute": 3.5, "is deaf": 3.9}
