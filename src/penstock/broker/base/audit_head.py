"""The last event of an audit chain, kept beside the data of the broker: the next start continues from there.

A head with a key has a message authentication code, so that an attacker cannot set the chain back unseen.
"""

from __future__ import annotations

import hmac
import json
import os
from typing import Final

from penstock.audit.chain import Head, canonical, hash_of, parse_head
from penstock.broker.base.logs import get_logger

__all__ = ["HeadFile", "read_head"]

log = get_logger("audit")
_MODE: Final = 0o600


def read_head(content: bytes, key: bytes) -> Head | None:
    """The head in the content of a file; None if it is none, or was made with another key."""
    try:
        fields = json.loads(content)
    except ValueError:
        return None
    head = parse_head(fields)
    if head is None:
        return None
    code = hash_of(key, canonical(head._asdict()))
    return head if hmac.compare_digest(str(fields.get("code")).encode(), code.encode()) else None


def head_content(head: Head, key: bytes) -> bytes:
    """The content of a file with a head."""
    fields = head._asdict()
    return canonical({**fields, "code": hash_of(key, canonical(fields))}) + b"\n"


class HeadFile:
    """The file with the head of one sink. Used by the thread of the sink."""

    def __init__(self, path: str, key: bytes) -> None:
        self._path = path
        self._key = key

    def read(self) -> Head | None:
        """The head; None if there is none. Raises OSError if the file cannot be read."""
        try:
            with open(self._path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return None
        head = read_head(content, self._key)
        if head is None:
            reason = "the file was changed, or penstock.audit.hash.key.file has another key"
            log.error("audit_head_invalid", path=self._path, reason=reason)
        return head

    def write(self, head: Head) -> None:
        new = f"{self._path}.new"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _MODE)
        try:
            os.write(descriptor, head_content(head, self._key))
        finally:
            os.close(descriptor)
        os.replace(new, self._path)
