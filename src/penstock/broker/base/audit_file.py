"""Audit events in a file: one line of JSON each, with older files FILE.1, FILE.2 and so on.

Only the owner can read the files. A batch is synced to the disk before it leaves the queue. A file that is
deleted because there are too many is first reported by an event of the chain, with its last event.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Final

from penstock.audit.chain import Head, parse_head
from penstock.audit.internal_events import FILE_DELETED, internal_event
from penstock.broker.base.descriptor_writes import write_all
from penstock.broker.base.logs import get_logger

__all__ = ["AuditFile", "has_text", "last_event"]

log = get_logger("audit")
_MODE: Final = 0o600
#: the end of a file that has its last event
_TAIL_BYTES: Final = 256 << 10


class AuditFile:
    """Writes to a file, and keeps up to `files_max` older ones (a `base.audit_sink.Delivery`)."""

    def __init__(self, path: str, bytes_max: int, files_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._descriptor: int | None = None
        #: the end of the last event that was written
        self._size = 0
        #: whether an attempt has failed in the middle, for example on a full disk
        self._is_torn = False

    def open(self) -> Head | None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = _opened(self._path)
        self._is_torn = False
        self._size = os.fstat(self._descriptor).st_size
        if self._size and os.pread(self._descriptor, 1, self._size - 1) != b"\n":
            # The machine has stopped inside a line. It stays: the check reports it.
            write_all(self._descriptor, b"\n")
            self._size += 1
        return next((head for path in self._newest_first() if (head := last_event(path)) is not None), None)

    def has(self, head: Head) -> bool:
        return any(has_text(path, head.hash.encode()) for path in self._newest_first())

    def _newest_first(self) -> list[str]:
        return [self._path, *(self._older(n) for n in range(1, self._files_max + 1))]

    def prepare(self) -> Sequence[Mapping[str, Any]]:
        surplus = self._older(self._files_max + 1)
        if not os.path.exists(surplus) and self._size >= self._bytes_max:
            self._rotate()
        if not os.path.exists(surplus):
            return ()
        last = last_event(surplus)
        fields = None if last is None else last._asdict()
        return [internal_event(FILE_DELETED, int(time() * 1000), last=fields)]

    def deliver(self, batch: Sequence[tuple[Mapping[str, Any], bytes]]) -> None:
        if self._descriptor is None:
            self.open()
        assert self._descriptor is not None
        if self._is_torn:
            # The file is locked: the bytes behind the last event are those of the attempt that failed.
            os.ftruncate(self._descriptor, self._size)
        data = b"".join(line + b"\n" for _, line in batch)
        self._is_torn = True
        write_all(self._descriptor, data)
        os.fdatasync(self._descriptor)
        self._is_torn = False
        self._size += len(data)
        if any(event["event"] == FILE_DELETED for event, _ in batch):
            self._delete_surplus()

    def _delete_surplus(self) -> None:
        """Delete the file that the chain has reported. If that fails, the next batch reports it again."""
        path = self._older(self._files_max + 1)
        try:
            os.unlink(path)
        except OSError as error:
            log.warning("audit_file_not_deleted", path=path, error=str(error))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _older(self, nth: int) -> str:
        return f"{self._path}.{nth}"

    def _rotate(self) -> None:
        """Rename FILE.1 to FILE.2 and so on, and FILE to FILE.1; the surplus file is deleted later."""
        nth = 1
        while nth <= self._files_max and os.path.exists(self._older(nth)):
            nth += 1
        for each in range(nth, 1, -1):
            os.replace(self._older(each - 1), self._older(each))
        os.replace(self._path, self._older(1))
        self.close()
        self._descriptor = _opened(self._path)
        self._size = os.fstat(self._descriptor).st_size


def _opened(path: str) -> int:
    """A locked file that only its owner can read; BlockingIOError if another process writes to it."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, _MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(descriptor, _MODE)
    except BlockingIOError as e:
        os.close(descriptor)
        hint = "another process writes to it: use {node} in penstock.audit.file.path"
        raise BlockingIOError(e.errno, hint, path) from e
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def last_event(path: str) -> Head | None:
    """The last event of a file; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    finally:
        os.close(descriptor)
    for line in reversed(tail.splitlines()):
        try:
            head = parse_head(json.loads(line))
        except ValueError:
            continue
        if head is not None:
            return head
    return None


def has_text(path: str, text: bytes) -> bool:
    """Whether a file has a text, which is much shorter than `_TAIL_BYTES`."""
    if not os.path.exists(path):
        return False
    end = b""
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_TAIL_BYTES):
            if text in end + piece:
                return True
            end = piece[-len(text) :]
    return False
