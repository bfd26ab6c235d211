"""Encrypts and decrypts the directories of a stopped broker, and gives their files a new key.

Each file is written under another name, synced and renamed. An interrupted conversion leaves a directory that
no broker uses (`directory.IN_PROGRESS`), and is finished by another run: files that are done are left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.encryption import IN_PROGRESS, META
from penstock.encryption.directory import content_paths, is_encrypted, slots_of
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.header import (
    EXTENTS_MAX,
    HEADER_BYTES,
    SLOTS_AT,
    Slot,
    decode_extents,
    decode_slots,
    encode_slots,
    unwrapped,
)
from penstock.encryption.keys import NONCE_BYTES, MissingKey
from penstock.model.errors import PenstockError
from penstock.ports import File, Files

__all__ = ["decrypt_directory", "encrypt_directory", "rotate_directory"]

_PIECE: Final = 1 << 20
_NEW: Final = ".encryption"
#: a file with more extents is written anew
_EXTENTS_KEPT: Final = EXTENTS_MAX // 2

#: called with the path of each file that was converted, and its new path
Converted = Callable[[str, str], None]


def encrypt_directory(encrypted: EncryptedFiles, directory: str, converted: Converted) -> int:
    """Encrypt all files of a directory; returns how many. `converted` is called before a file is replaced."""
    return _convert(encrypted.inner, encrypted, encrypted.inner, directory, converted, wanted=True)


def decrypt_directory(encrypted: EncryptedFiles, directory: str, converted: Converted) -> int:
    """Decrypt all files of a directory; returns how many. MissingKey if a key is not there."""
    return _convert(encrypted, encrypted.inner, encrypted.inner, directory, converted, wanted=False)


def _convert(
    source: Files, target: Files, files: Files, directory: str, converted: Converted, *, wanted: bool
) -> int:
    if not files.exists(f"{directory}/{META}"):
        raise PenstockError(f"{directory} has no {META}: it is not a data directory")
    lock = _locked(files, directory)
    try:
        files.write_atomic(f"{directory}/{IN_PROGRESS}", b"")
        for path in [each for each in content_paths(files, directory) if each.endswith(_NEW)]:
            files.remove(path)
        number = 0
        for path in list(content_paths(files, directory)):
            if bool(slots_of(files, path)) is not wanted:
                _copy(source, target, path, converted)
                number += 1
        files.remove(f"{directory}/{IN_PROGRESS}")
        files.sync_dir(directory)
    finally:
        lock.close()
    return number


def _copy(source: Files, target: Files, path: str, converted: Converted) -> None:
    old, new = source.open(path), target.open(path + _NEW, create=True)
    try:
        position, size = 0, old.size()
        new.truncate(0)
        while position < size:
            piece = old.pread(min(_PIECE, size - position), position)
            if not piece:
                raise PenstockError(f"{path} is shorter than {size} bytes")
            new.append(piece)
            position += len(piece)
        new.sync()
    finally:
        old.close()
        new.close()
    converted(path, path + _NEW)
    target.rename(path + _NEW, path)
    target.sync_dir(path.rpartition("/")[0])


def rotate_directory(encrypted: EncryptedFiles, directory: str, converted: Converted) -> int:
    """Wrap the keys of all files with the current key; returns how many had another one.

    The content stays as it is. Only files with many extents are written anew.
    """
    files = encrypted.inner
    if not is_encrypted(files, directory):
        raise PenstockError(f"{directory} is not encrypted: `penstock encryption apply` encrypts it")
    lock = _locked(files, directory)
    try:
        return sum(_rotate(encrypted, path, converted) for path in list(content_paths(files, directory)))
    finally:
        lock.close()


def _rotate(encrypted: EncryptedFiles, path: str, converted: Converted) -> bool:
    current = encrypted.ring.current
    file = encrypted.inner.open(path)
    try:
        page = file.pread(HEADER_BYTES, 0)
        slots = decode_slots(page)
        secret = unwrapped(slots, encrypted.ring)
        if secret is None:
            _check_damaged(encrypted, slots, path)
            return False
        if len(decode_extents(page)) > _EXTENTS_KEPT:
            _copy(encrypted, encrypted, path, converted)
            return True
        if [slot.name for slot in slots] == [current.name]:
            return False
        nonce = encrypted.token(NONCE_BYTES)
        new = Slot(current.name, nonce, current.wrap(secret, nonce))
        # The old slot is in the place that it has: the new one goes into the other.
        is_first = page[SLOTS_AT : SLOTS_AT + 1] != b"\0"
        kept = slots[0]
        for pair in ([kept, new], [None, new]) if is_first else ([new, kept], [new, None]):
            file.pwrite(encode_slots(pair), SLOTS_AT)
            file.sync()
        return True
    finally:
        file.close()


def _check_damaged(encrypted: EncryptedFiles, slots: list[Slot], path: str) -> None:
    """Raise MissingKey unless the header of a file is damaged: such a file cannot be helped here."""
    if slots and all(encrypted.ring.get(slot.name) is None for slot in slots):
        raise MissingKey(f"{path} is encrypted with the key {slots[0].name}, which is not among the given")


def _locked(files: Files, directory: str) -> File:
    try:
        return files.lock(f"{directory}/lock")
    except BlockingIOError as e:
        raise PenstockError(f"{directory} is in use by a broker: stop it first") from e
