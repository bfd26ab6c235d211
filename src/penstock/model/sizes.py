"""The size of a message, and of the batch around it."""

from __future__ import annotations

__all__ = ["batch_bytes"]


def batch_bytes(message_bytes: int) -> int:
    """The size of the largest batch that one message with a value of `message_bytes` makes.

    A batch has a header of 61 bytes, and a record up to 40 beside its key, value and headers. A codec that
    finds nothing to compress adds less than 1 % (gzip 5 bytes per block, snappy 20 per 32 KiB).
    """
    return message_bytes + message_bytes // 64 + 1024 if message_bytes >= 0 else message_bytes
