"""Errors of archives. Stores raise `OSError` as files do; these are about the content of objects.

ArchiveError
├── ArchiveDamaged              the bytes of an object differ from the written ones, or from its entry
├── ArchiveRefused              the archive, or the store, cannot be used as it is: its user has to act
└── WriterDeposed               another writer has continued the chain of manifests
"""

from __future__ import annotations

from penstock.model.errors import PenstockError

__all__ = ["ArchiveDamaged", "ArchiveError", "ArchiveRefused", "WriterDeposed"]


class ArchiveError(PenstockError):
    """Base of all errors of archives."""


class ArchiveDamaged(ArchiveError):
    """An object whose bytes are not those that were written."""


class ArchiveRefused(ArchiveError):
    """An archive or a store that cannot be used: a newer version, no conditional put, no archive there."""


class WriterDeposed(ArchiveError):
    """A manifest cannot be written: another writer has continued the chain."""
