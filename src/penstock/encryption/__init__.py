"""Encryption of data directories: a `Files` that encrypts and authenticates, its file format, and its keys.

docs/adr/0055-authenticated-encryption.md has the format, what it protects and what it does not. A broker
without keys imports only the names below.
"""

from __future__ import annotations

from typing import Final

__all__ = ["IN_PROGRESS", "KEYS", "MAGIC", "META", "PLAIN", "VERSION", "version_of"]

#: how an encrypted file begins; the next byte is the version of its format
MAGIC: Final = b"PSTKENC"
#: the version that is written
VERSION: Final = 2
#: the version of a file in plain text
PLAIN: Final = 0
#: the file of a data directory whose header decides whether the directory is encrypted
META: Final = "meta.json"
#: exists while a directory is converted
IN_PROGRESS: Final = "encryption-in-progress"
#: the keys of a directory, wrapped by a key provider; a file in plain text
KEYS: Final = "encryption-keys.json"


def version_of(head: bytes) -> int:
    """The version of the format of a file that begins with `head`; PLAIN if it is not encrypted."""
    size = len(MAGIC)
    return head[size] if len(head) > size and head[:size] == MAGIC else PLAIN
