"""Counters of reads from archives."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RemoteStats"]


@dataclass(slots=True)
class RemoteStats:
    """The reads of one broker."""

    #: chunks that were read from the store, and their bytes
    requests: int = 0
    bytes_read: int = 0
    #: reads that have failed, of chunks and of documents
    errors: int = 0
    #: bytes of chunks that are in the cache
    cached_bytes: int = 0
