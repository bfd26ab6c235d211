"""The headers of a dead letter: those of the message, then its origin and the reason."""

from __future__ import annotations

from penstock.client.message import Message

__all__ = ["dead_letter_headers"]


def dead_letter_headers(message: Message, error: Exception, attempts: int) -> list[tuple[str, bytes]]:
    origin = {
        "penstock.dead-letter.reason": str(error) or repr(error),
        "penstock.dead-letter.exception": f"{type(error).__module__}.{type(error).__qualname__}",
        "penstock.dead-letter.topic": message.topic,
        "penstock.dead-letter.partition": str(message.partition),
        "penstock.dead-letter.offset": str(message.offset),
        "penstock.dead-letter.attempts": str(attempts),
    }
    kept = [(name, value) for name, value in message.headers if value is not None]
    return kept + [(name, value.encode()) for name, value in origin.items()]
