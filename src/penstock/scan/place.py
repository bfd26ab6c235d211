"""Where an archive is, and how its store is opened."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from penstock.archive.errors import ArchiveRefused
from penstock.encryption.keys import KeyRing, parse_keys
from penstock.objectstore.address import parse_address, parse_options
from penstock.objectstore.encrypted_store import with_keys
from penstock.objectstore.object_store import open_store
from penstock.ports import ObjectStore

__all__ = ["ArchivePlace", "open_place"]

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


def _ring(place: ArchivePlace) -> KeyRing | None:
    return None if place.keys is None else parse_keys(_text(place.keys))


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise ArchiveRefused(f"cannot read {path}: {reason}") from e
