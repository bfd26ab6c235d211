"""The headers of dead letters (KIP-1191): text that names the record and the reason."""

from __future__ import annotations

from typing import Final

__all__ = [
    "DEAD_LETTER_DELIVERY_COUNT",
    "DEAD_LETTER_GROUP",
    "DEAD_LETTER_MESSAGE",
    "DEAD_LETTER_OFFSET",
    "DEAD_LETTER_PARTITION",
    "DEAD_LETTER_PREFIX",
    "DEAD_LETTER_TOPIC",
]

#: the prefix of all of them
DEAD_LETTER_PREFIX: Final = "__dlq.errors."
DEAD_LETTER_TOPIC: Final = f"{DEAD_LETTER_PREFIX}topic"
DEAD_LETTER_PARTITION: Final = f"{DEAD_LETTER_PREFIX}partition"
DEAD_LETTER_OFFSET: Final = f"{DEAD_LETTER_PREFIX}offset"
DEAD_LETTER_GROUP: Final = f"{DEAD_LETTER_PREFIX}group"
DEAD_LETTER_DELIVERY_COUNT: Final = f"{DEAD_LETTER_PREFIX}delivery.count"
DEAD_LETTER_MESSAGE: Final = f"{DEAD_LETTER_PREFIX}message"
