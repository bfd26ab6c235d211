"""The files, folders and links of an image, before they are in a layer."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["Entry", "directory", "file", "from_path", "link"]


class Entry(NamedTuple):
    """One member of a layer. Either `source` has its bytes, or `content`."""

    #: from the root, without a slash at the beginning
    path: str
    mode: int
    source: Path | None = None
    content: bytes = b""
    #: of a symbolic link
    target: str = ""
    is_directory: bool = False
    owner: int = 0

    def read(self) -> bytes:
        return self.content if self.source is None else self.source.read_bytes()


def directory(path: str, mode: int = 0o755, owner: int = 0) -> Entry:
    return Entry(path, mode, is_directory=True, owner=owner)


def file(path: str, content: bytes, mode: int = 0o644) -> Entry:
    return Entry(path, mode, content=content)


def link(path: str, target: str) -> Entry:
    return Entry(path, 0o777, target=target)


def from_path(path: str, source: Path) -> Entry:
    """A file of this machine. Its mode is 755 or 644: modes of a checkout depend on the umask."""
    return Entry(path, 0o755 if source.stat().st_mode & 0o100 else 0o644, source)
