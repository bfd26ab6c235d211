"""The headers of a dead letter, as in KIP-1191: those of the message, then its origin and the reason."""

from __future__ import annotations

from typing import Final

from penstock.client.message import Message

__all__ = ["DEAD_LETTER_PREFIX", "dead_letter_headers"]

#: how the names of the added headers begin
DEAD_LETTER_PREFIX: Final = "__dlq.errors."


def dead_letter_headers(
    message: Message, error: Exception, attempts: int, group: str
) -> list[tuple[str, bytes]]:
    """Headers of an earlier dead letter are left out: each name occurs once."""
    origin = {
        "topic": message.topic,
        "partition": str(message.partition),
        "offset": str(message.offset),
        "group": group,
        "delivery.count": str(attempts),
        "message": f"{type(error).__name__}: {error}" if str(error) else repr(error),
    }
    kept = [
        (name, value)
        for name, value in message.headers
        if value is not None and not name.startswith(DEAD_LETTER_PREFIX)
    ]
    return kept + [(f"{DEAD_LETTER_PREFIX}{name}", value.encode()) for name, value in origin.items()]
