"""Where an archive is, and how its store is opened."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.encryption.keys import KeyRing, parse_keys
from penstock.objectstore.address import parse_address, parse_options
from penstock.objectstore.encrypted_store import with_keys
from penstock.objectstore.object_store import LibraryStore, open_store
from penstock.ports import Buffer, ObjectStore

__all__ = ["ArchivePlace", "LocalBlocks", "local_blocks", "open_place", "read_blocks"]

_STORES_MAX = 8


class ArchivePlace(NamedTuple):
    """An address, and the files that each machine has for it. It has no secrets, so it may be sent."""

    address: str
    #: a file with options of the store, one NAME=VALUE in a line; otherwise the environment has them
    store_config: str | None = None
    #: a file with the keys of an encrypted archive
    keys: str | None = None


@lru_cache(_STORES_MAX)
def open_place(place: ArchivePlace) -> ObjectStore:
    """The store, one for each place in a process; ArchiveRefused if a file cannot be read."""
    options = None
    if place.store_config is not None:
        options = parse_options(_text(place.store_config), place.store_config)
    return with_keys(open_store(parse_address(place.address), options), _ring(place))


async def read_blocks(store: ObjectStore, name: str, start: int, end: int) -> Buffer:
    """A range of an object that a manifest names; ArchiveDamaged if the object is missing.

    What the library returns is not copied.
    """
    try:
        if isinstance(store, LibraryStore):
            return await store.get_buffer(name, start, end)
        return await store.get_range(name, start, end)
    except FileNotFoundError as e:
        raise ArchiveDamaged(f"{name} is missing") from e


class LocalBlocks:
    """Reads ranges of objects in a folder, each into the same memory: the last one is gone then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = ""
        self._file: BinaryIO | None = None
        self._memory = bytearray()

    def read(self, name: str, start: int, end: int) -> Buffer:
        """ArchiveDamaged if the object is missing; less than wanted if it is shorter."""
        if self._file is None or name != self._name:
            self.close()
            try:
                self._file = (self._folder / name).open("rb", buffering=0)
            except FileNotFoundError as e:
                raise ArchiveDamaged(f"{name} is missing") from e
            self._name = name
        size = end - start
        if len(self._memory) < size:
            self._memory = bytearray(size)
        # The kernel reads the next chunk while this one is decoded.
        os.posix_fadvise(self._file.fileno(), end, size, os.POSIX_FADV_WILLNEED)
        view, done = memoryview(self._memory)[:size], 0
        while done < size and (got := os.preadv(self._file.fileno(), [view[done:]], start + done)):
            done += got
        return view[:done]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def local_blocks(place: ArchivePlace) -> LocalBlocks | None:
    """For an archive in a folder, in plain text; None for others."""
    folder = parse_address(place.address).folder
    return None if folder is None or place.keys is not None else LocalBlocks(folder)


def _ring(place: ArchivePlace) -> KeyRing | None:
    return None if place.keys is None else parse_keys(_text(place.keys))


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise ArchiveRefused(f"cannot read {path}: {reason}") from e
