"""Whether a data directory is encrypted, with which keys, and whether a broker may use it.

A directory is encrypted as a whole or not at all; the header of its `meta.json` decides. While a directory is
converted it has a file `encryption-in-progress`, and no broker uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.encryption import IN_PROGRESS, MAGIC, META
from penstock.encryption.header import HEADER_BYTES, Slot, decode_slots
from penstock.encryption.keys import KeyRing, MissingKey
from penstock.model.errors import PenstockError
from penstock.ports import Files

__all__ = [
    "NOT_ENCRYPTED",
    "DirectoryNotEncrypted",
    "check_directories",
    "content_paths",
    "is_encrypted",
    "key_names",
    "slots_of",
]

#: stands for the name of a key in the counts of files that have none
NOT_ENCRYPTED: Final = ""
#: files without content
_LEFT_OUT: Final = frozenset({"lock", "reserve", IN_PROGRESS})


class DirectoryNotEncrypted(PenstockError):
    """A directory has content in plain text, although the broker has keys. The message has the remedy."""


def is_encrypted(files: Files, directory: str) -> bool:
    """Whether a data directory is encrypted; false for a new one."""
    path = f"{directory}/{META}"
    return files.exists(path) and files.read(path).startswith(MAGIC)


def check_directories(files: Files, directories: Iterable[str], ring: KeyRing | None) -> Counter[str]:
    """Raise PenstockError if a broker with these keys must not use a directory, before it changes anything.

    Returns the number of files by the name of their key. `files` are those below the encryption.
    """
    found: Counter[str] = Counter()
    for directory in directories:
        if files.exists(f"{directory}/{IN_PROGRESS}"):
            raise PenstockError(
                f"{directory} is being encrypted or decrypted: repeat the interrupted `penstock encryption` "
                f"command"
            )
        if not files.exists(f"{directory}/{META}"):
            continue
        if ring is None:
            if is_encrypted(files, directory):
                names = ", ".join(slot.name for slot in slots_of(files, f"{directory}/{META}"))
                raise MissingKey(
                    f"{directory} is encrypted with the key {names}: set penstock.encryption.keys to it"
                )
            continue
        _check_meta(files, directory, ring)
        found += _checked(files, directory, ring)
    return found


def _check_meta(files: Files, directory: str, ring: KeyRing) -> None:
    slots = slots_of(files, f"{directory}/{META}")
    if not slots:
        raise DirectoryNotEncrypted(
            f"{directory} is not encrypted, but penstock.encryption.keys is set: encrypt the directory with "
            f"`penstock encryption apply`, or leave the keys out"
        )
    for slot in slots:
        key = ring.get(slot.name)
        if key is not None and key.unwrap(slot.wrapped, slot.nonce) is not None:
            return
    if all(ring.get(slot.name) is None for slot in slots):
        return
    raise MissingKey(
        f"{directory} is encrypted with another key of the name {slots[0].name} than the one in "
        f"penstock.encryption.keys: put the right one there"
    )


def _checked(files: Files, directory: str, ring: KeyRing) -> Counter[str]:
    """The number of files by key; MissingKey if there are files that no key of the ring opens."""
    found: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    for path in content_paths(files, directory):
        names = [slot.name for slot in slots_of(files, path)]
        counts = found if not names or any(map(ring.get, names)) else missing
        counts[names[0] if names else NOT_ENCRYPTED] += 1
    if missing:
        raise MissingKey(
            f"{directory} has {missing.total()} files that are encrypted with the key "
            f"{', '.join(sorted(missing))}, which penstock.encryption.keys does not have: add the key. If it "
            f"is lost, so is their content: empty the directory, and the broker copies replicas from others"
        )
    return found


def key_names(files: Files, directory: str) -> Counter[str]:
    """The number of files by the name of the key that encrypts them; NOT_ENCRYPTED for those without."""
    slots = (slots_of(files, path) for path in content_paths(files, directory))
    return Counter(each[0].name if each else NOT_ENCRYPTED for each in slots)


def slots_of(files: Files, path: str) -> list[Slot]:
    """The slots in the header of a file; none if it has no header."""
    file = files.open(path)
    try:
        return decode_slots(file.pread(HEADER_BYTES, 0))
    finally:
        file.close()


def content_paths(files: Files, directory: str) -> Iterator[str]:
    """The files of a data directory that have content, in the order of their names."""
    pending = [directory]
    while pending:
        folder = pending.pop()
        for name in files.listdir(folder):
            path = f"{folder}/{name}"
            if files.is_dir(path):
                pending.append(path)
            elif not (folder == directory and name in _LEFT_OUT) and files.size(path):
                yield path
