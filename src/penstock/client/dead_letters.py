"""The headers of a dead letter, as in KIP-1191: those of the message, then its origin and the reason."""

from __future__ import annotations

from penstock.client.message import Message
from penstock.model.dead_letters import (
    DEAD_LETTER_DELIVERY_COUNT,
    DEAD_LETTER_GROUP,
    DEAD_LETTER_MESSAGE,
    DEAD_LETTER_OFFSET,
    DEAD_LETTER_PARTITION,
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_TOPIC,
)

__all__ = ["dead_letter_headers"]


def dead_letter_headers(
    message: Message, error: Exception, attempts: int, group: str
) -> list[tuple[str, bytes | None]]:
    """Headers of an earlier dead letter are left out: each name occurs once."""
    origin = {
        DEAD_LETTER_TOPIC: message.topic,
        DEAD_LETTER_PARTITION: str(message.partition),
        DEAD_LETTER_OFFSET: str(message.offset),
        DEAD_LETTER_GROUP: group,
        DEAD_LETTER_DELIVERY_COUNT: str(attempts),
        DEAD_LETTER_MESSAGE: f"{type(error).__name__}: {error}" if str(error) else repr(error),
    }
    kept = [header for header in message.headers if not header[0].startswith(DEAD_LETTER_PREFIX)]
    return [*kept, *((name, value.encode()) for name, value in origin.items())]
