"""The port for random numbers on the operating system's source, and the nonces of logins."""

from __future__ import annotations

import os
import random
from base64 import b64encode

__all__ = ["SystemRng", "new_nonce"]

_NONCE_BYTES = 24


class SystemRng:
    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def token(self, size: int) -> bytes:
        return os.urandom(size)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


def new_nonce() -> str:
    """A nonce of a SCRAM client."""
    return b64encode(os.urandom(_NONCE_BYTES)).decode()
