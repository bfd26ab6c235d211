"""The state of a data directory: encrypted or not, version, keys, and whether a broker may use it.

A directory is encrypted as a whole or not at all; the header of its `meta.json` decides. While a directory is
converted it has a file `encryption-in-progress`, and no broker uses it.

The header of `meta.json` also has the version of the directory. Only in a directory of version 1 are files of
version 1 read. There all other files are written in the current version, and `meta.json` changes last.
Why: a file of version 1 is not bound to its place, so it must not be possible to bring one back later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from penstock.encryption import IN_PROGRESS, KEYS, META, PLAIN, VERSION
from penstock.encryption.files import UNREADABLE
from penstock.encryption.head import HEADER_BYTES, decode_heads, version_in
from penstock.encryption.keys import KeyRing, MissingKey
from penstock.encryption.version1 import decode_slots
from penstock.model.errors import PenstockError
from penstock.ports import Files

__all__ = [
    "NOT_ENCRYPTED",
    "DirectoryNotEncrypted",
    "FileState",
    "check_directories",
    "content_paths",
    "directory_version",
    "file_state",
    "file_states",
]

#: stands for the name of a key in the counts of files that have none
NOT_ENCRYPTED: Final = ""
#: files that are opened to tell wrong keys from a damaged header
_FILES_TRIED: Final = 100
#: files without content, or that must be readable without a key
_LEFT_OUT: Final = frozenset({"lock", IN_PROGRESS, KEYS})


class DirectoryNotEncrypted(PenstockError):
    """A directory has content in plain text, although the broker has keys. The message has the remedy."""


class FileState(NamedTuple):
    """The version of a file, and the names of the keys that open it."""

    version: int
    keys: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.keys[0] if self.keys else NOT_ENCRYPTED


def file_state(files: Files, path: str) -> FileState:
    """The state of a file by its header. `files` are those below the encryption, here and elsewhere."""
    page = _first_page(files, path)
    version = version_in(page, path)
    if version == VERSION:
        names = [slot.name for head in decode_heads(page) for slot in head.slots.values()]
    else:
        names = [slot.name for slot in decode_slots(page)]
    return FileState(version, tuple(dict.fromkeys(names)))


def file_states(files: Files, directory: str) -> Counter[tuple[int, str]]:
    """The number of files by version and key; NOT_ENCRYPTED for those without a key."""
    states = (file_state(files, path) for path in content_paths(files, directory))
    return Counter((state.version, state.key) for state in states)


def directory_version(files: Files, directory: str) -> int:
    """The version of a data directory; PLAIN if it is not encrypted, or new."""
    path = f"{directory}/{META}"
    return file_state(files, path).version if files.exists(path) and files.size(path) else PLAIN


def check_directories(
    files: Files, directories: Iterable[str], ring: KeyRing | None
) -> Counter[tuple[int, str]]:
    """Raise PenstockError if a broker with these keys must not use a directory, before it changes anything.

    Returns the number of files by version and key.
    """
    found: Counter[tuple[int, str]] = Counter()
    for directory in directories:
        if files.exists(f"{directory}/{IN_PROGRESS}"):
            raise PenstockError(
                f"{directory} is being encrypted or decrypted: repeat the interrupted `penstock encryption` "
                f"command"
            )
        if not files.exists(f"{directory}/{META}"):
            _check_new(files, directory)
            continue
        if ring is None:
            state = file_state(files, f"{directory}/{META}")
            if state.version != PLAIN:
                raise MissingKey(
                    f"{directory} is encrypted with the key {', '.join(state.keys)}: set "
                    f"penstock.encryption.keys to it"
                )
            continue
        _check_meta(files, directory, ring)
        found += _checked(files, directory, ring)
    return found


def _check_new(files: Files, directory: str) -> None:
    """Refuse a directory that has lost its `meta.json`.

    The keys of other files are bound to its ids, and its header says whether version 1 is read.
    """
    for path in content_paths(files, directory) if files.is_dir(directory) else ():
        if file_state(files, path).version != PLAIN:
            raise PenstockError(
                f"{directory} has encrypted files, but no {META}: restore it from a backup. Without it, "
                f"empty the directory, and the broker copies replicas from others"
            )


def _check_meta(files: Files, directory: str, ring: KeyRing) -> None:
    meta = f"{directory}/{META}"
    state = file_state(files, meta)
    if state.version == PLAIN and files.read(meta).lstrip().startswith(b"{"):
        raise DirectoryNotEncrypted(
            f"{directory} is not encrypted, but penstock.encryption.keys is set: encrypt the directory with "
            f"`penstock encryption apply`, or leave the keys out"
        )
    if _opens(files, meta, ring) or (state.version != PLAIN and not any(map(ring.get, state.keys))):
        # A key that is missing is found with those of all other files.
        return
    others = (path for path in content_paths(files, directory) if path != meta)
    if state.version == PLAIN or any(_opens(files, path, ring) for path in islice(others, _FILES_TRIED)):
        # The keys are right: telling an operator to encrypt the directory, or to bring keys, would mislead.
        raise PenstockError(
            f"{meta} is damaged: no copy of its header can be used. Restore the file from a backup. Without "
            f"it, empty the directory, and the broker copies replicas from others"
        )
    raise MissingKey(
        f"{directory} is encrypted with another key of the name {state.key} than the one in "
        f"penstock.encryption.keys: put the right one there"
    )


def _opens(files: Files, path: str, ring: KeyRing) -> bool:
    """Returns true if a key of the ring opens a file."""
    page = _first_page(files, path)
    for head in decode_heads(page):
        for slot in head.slots.values():
            key = ring.get(slot.name)
            if key is not None and key.unwrap_file_key(slot.wrapped, slot.salt, head.place) is not None:
                return True
    for old in decode_slots(page):
        key = ring.get(old.name)
        if key is not None and key.unwrap(old.wrapped, old.nonce) is not None:
            return True
    return False


def _first_page(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.pread(HEADER_BYTES, 0)
    finally:
        file.close()


def _checked(files: Files, directory: str, ring: KeyRing) -> Counter[tuple[int, str]]:
    """The number of files by version and key; MissingKey if there are files that no key of the ring opens."""
    found: Counter[tuple[int, str]] = Counter()
    missing: Counter[str] = Counter()
    not_opened: Counter[str] = Counter()
    right: set[str] = set()
    for path in content_paths(files, directory):
        state = file_state(files, path)
        if state.keys and not any(map(ring.get, state.keys)):
            missing[state.key] += 1
            continue
        found[state.version, state.key] += 1
        if state.keys and right.isdisjoint(state.keys):
            if _opens(files, path, ring):
                right.update(state.keys)
            else:
                not_opened[state.key] += 1
    if missing:
        raise MissingKey(
            f"{directory} has {missing.total()} files that are encrypted with the key "
            f"{', '.join(sorted(missing))}, which penstock.encryption.keys does not have: add the key. If it "
            f"is lost, so is their content: empty the directory, and the broker copies replicas from others"
        )
    for name, count in not_opened.items():
        # A single file may be damaged. Without this, a start would take all of them for empty ones.
        if name not in right and count > 1:
            raise MissingKey(
                f"{directory} has {count} files that are encrypted with another key of the name {name} than "
                f"the one in penstock.encryption.keys: put the right one there"
            )
    return found


def content_paths(files: Files, directory: str, *, with_unreadable: bool = False) -> Iterator[str]:
    """The files of a data directory that have content, folder by folder.

    `with_unreadable`: also files that were set aside.
    """
    pending = [directory]
    while pending:
        folder = pending.pop()
        for name in files.listdir(folder):
            path = f"{folder}/{name}"
            if files.is_dir(path):
                pending.append(path)
            elif folder == directory and name in _LEFT_OUT:
                continue
            elif (with_unreadable or UNREADABLE not in name) and _has_content(files, path):
                yield path


def _has_content(files: Files, path: str) -> bool:
    """Returns false also for a link to a volume that is not mounted: storage reports it."""
    try:
        return files.size(path) > 0
    except FileNotFoundError:
        return False
