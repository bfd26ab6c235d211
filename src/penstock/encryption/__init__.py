"""Encryption of data directories: a `Files` that encrypts, the format of encrypted files, and their keys.

docs/adr/0023-encryption-at-rest.md has what it protects and what it does not. A broker without keys imports
only the names below.
"""

from __future__ import annotations

from typing import Final

__all__ = ["IN_PROGRESS", "MAGIC", "META"]

#: how an encrypted file begins
MAGIC: Final = b"PSTKENC\x01"
#: the file of a data directory whose header decides whether the directory is encrypted
META: Final = "meta.json"
#: exists while a directory is converted
IN_PROGRESS: Final = "encryption-in-progress"
