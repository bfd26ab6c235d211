"""Converts the directories of a stopped broker: to the current version, to plain text, and to other keys.

Each file is written under another name, synced and renamed. An interrupted conversion leaves a directory that
no broker uses (`IN_PROGRESS`), and is finished by another run: files that are done are left alone. The last
one is `meta.json`, because its header says in which version the others may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from penstock.encryption import IN_PROGRESS, META, PLAIN, VERSION
from penstock.encryption.directory import content_paths, directory_version, file_state
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.head import (
    COPIES_AT,
    HEADER_BYTES,
    decode_heads,
    encode_head,
    unwrapped,
    wrapped_slot,
)
from penstock.encryption.keys import MissingKey
from penstock.encryption.places import is_partition_folder
from penstock.encryption.version1 import read_header
from penstock.model.errors import PenstockError
from penstock.ports import File, Files

__all__ = [
    "ALL_VERSIONS",
    "convert_small_files",
    "decrypt_directory",
    "encrypt_directory",
    "rotate_directory",
]

#: the versions that a conversion reads
ALL_VERSIONS: Final = frozenset(range(PLAIN, VERSION + 1))
_PIECE: Final = 1 << 20
_NEW: Final = ".encryption"
#: what a start converts before anything else: bounds its time
_SMALL_FILES_MAX: Final = 5_000
_SMALL_BYTES: Final = 2 << 20

#: called with the path of each file that was converted, and its new path
Converted = Callable[[str, str], None]


def encrypt_directory(encrypted: EncryptedFiles, directory: str, converted: Converted) -> int:
    """Convert all files of a directory to the current version; returns how many had another one.

    `converted` is called before a file is replaced.
    """
    return _convert(encrypted, encrypted, directory, converted, VERSION)


def decrypt_directory(encrypted: EncryptedFiles, directory: str, converted: Converted) -> int:
    """Decrypt all files of a directory; returns how many. MissingKey if a key is not there."""
    return _convert(encrypted, encrypted.inner, directory, converted, PLAIN)


def _convert(
    encrypted: EncryptedFiles, target: Files, directory: str, converted: Converted, version: int
) -> int:
    files = encrypted.inner
    if not files.exists(f"{directory}/{META}"):
        raise PenstockError(f"{directory} has no {META}: it is not a data directory")
    # Reads every version, whatever the given one reads: it resolves the places of files on the way.
    source = EncryptedFiles(files, encrypted.ring, encrypted.token, accepts=ALL_VERSIONS)
    if target is encrypted:
        target = source
    lock = _locked(files, directory)
    try:
        _check_folders(source, directory)
        files.write_atomic(f"{directory}/{IN_PROGRESS}", b"")
        for path in [each for each in content_paths(files, directory) if each.endswith(_NEW)]:
            files.remove(path)
        paths = [
            path for path in content_paths(files, directory) if file_state(files, path).version != version
        ]
        paths.sort(key=lambda path: path == f"{directory}/{META}")
        if version == VERSION:
            _check_plain(files, directory, paths)
        for path in paths:
            _copy(source, target, path, converted)
        files.remove(f"{directory}/{IN_PROGRESS}")
        files.sync_dir(directory)
    finally:
        lock.close()
    return len(paths)


def _check_plain(files: Files, directory: str, paths: Iterable[str]) -> None:
    """Raise PenstockError if a file without a header of the encryption is not in plain text, but damaged.

    `meta.json` is encrypted last, and begins with a brace. If it is in plain text, all other files must be,
    too.
    """
    meta = f"{directory}/{META}"
    is_plain = file_state(files, meta).version == PLAIN
    if is_plain and files.read(meta).lstrip().startswith(b"{"):
        return
    for path in paths:
        if file_state(files, path).version == PLAIN:
            raise PenstockError(f"{path} is damaged: it has no header of the encryption. Move it away")


def convert_small_files(encrypted: EncryptedFiles, directory: str) -> int:
    """Convert the files of version 1 of a directory, at a start, if all are small; returns how many are left.

    `meta.json` is the last one. Each file is replaced at once: a crash leaves a directory of version 1.
    """
    files, meta = encrypted.inner, f"{directory}/{META}"
    old = [path for path in content_paths(files, directory) if file_state(files, path).version == 1]
    source = EncryptedFiles(files, encrypted.ring, encrypted.token, accepts=frozenset({1, VERSION}))
    old.sort(key=lambda path: path == meta)
    is_small = len(old) <= _SMALL_FILES_MAX and all(files.size(path) <= _SMALL_BYTES for path in old)
    if not is_small or not all(_is_convertible(source, path) for path in old):
        return len(old)
    for path in old:
        target = encrypted if path == meta else source
        target.write_atomic(path, source.read(path))
    return 0


def _is_convertible(files: EncryptedFiles, path: str) -> bool:
    """Returns true if a file of version 1 has a sound header, and a place.

    It has none if its folder does not say to which partition it belongs.
    """
    folder = path.rpartition("/")[0]
    if is_partition_folder(folder) and not files.places.is_known(folder):
        return False
    return read_header(files.inner.read(path)[:HEADER_BYTES], files.ring, path).stream is not None


def _check_folders(files: EncryptedFiles, directory: str) -> None:
    """Raise PenstockError if a folder does not say which partition it belongs to: its files have no place."""
    topics = f"{directory}/topics"
    for topic in files.listdir(topics) if files.is_dir(topics) else ():
        for name in files.listdir(f"{topics}/{topic}") if files.is_dir(f"{topics}/{topic}") else ():
            folder = f"{topics}/{topic}/{name}"
            if is_partition_folder(folder) and files.is_dir(folder) and not files.places.is_known(folder):
                raise PenstockError(
                    f"{folder} does not have the id of its topic: start the broker once before the "
                    f"conversion, which writes it, or move the folder away"
                )


def _copy(source: EncryptedFiles, target: Files, path: str, converted: Converted) -> None:
    old, new = source.open(path), target.open(path + _NEW, create=True)
    try:
        if file_state(source.inner, path).version == VERSION and not old.size():
            raise PenstockError(f"{path} cannot be read: it is damaged or another file. Move it away")
        position, size = 0, old.size()
        new.truncate(0)
        while position < size:
            try:
                piece = old.pread_verified(min(_PIECE, size - position), position)
            except OSError as e:
                raise PenstockError(f"{path} is damaged ({e.strerror}): move it away") from e
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

    The content stays as it is.
    """
    files = encrypted.inner
    version = directory_version(files, directory)
    if version == PLAIN:
        raise PenstockError(f"{directory} is not encrypted: `penstock encryption apply` encrypts it")
    lock = _locked(files, directory)
    try:
        paths = list(content_paths(files, directory))
        if version != VERSION or any(0 < file_state(files, path).version < VERSION for path in paths):
            raise PenstockError(
                f"{directory} has files of version 1: `penstock encryption apply` converts it, and uses the "
                f"first key for them"
            )
        rotated = sum(_rotate(encrypted, path) for path in paths)
        # The old key may be forgotten after this, and with it the content of files that were set aside.
        for path in set(content_paths(files, directory, with_unreadable=True)).difference(paths):
            with suppress(MissingKey):
                rotated += _rotate(encrypted, path)
        return rotated
    finally:
        lock.close()


def _rotate(encrypted: EncryptedFiles, path: str) -> bool:
    """Let the current key, and no other one, open a file; returns false if it is so already.

    First both keys open both copies of the header, then only the new one does. Each step is synced.
    """
    current = encrypted.ring.current.name
    file = encrypted.inner.open(path)
    try:
        page = file.pread(HEADER_BYTES, 0)
        heads = decode_heads(page)
        names = [slot.name for head in heads for slot in head.slots.values()]
        if not heads or (len(heads) == len(COPIES_AT) and set(names) == {current}):
            return False
        found = unwrapped(heads, encrypted.ring, path)
        if found is None:
            # The header is damaged: such a file cannot be helped here.
            return False
        secret, place = found
        new = wrapped_slot(encrypted.ring, secret, place, encrypted.token)
        kept = next((slot for head in heads for slot in head.slots.values() if slot.name != current), new)
        for slots in ({0: kept, 1: new}, {0: new}):
            for position in COPIES_AT:
                file.pwrite(encode_head(slots, place), position)
                file.sync()
        return True
    finally:
        file.close()


def _locked(files: Files, directory: str) -> File:
    try:
        return files.lock(f"{directory}/lock")
    except BlockingIOError as e:
        raise PenstockError(f"{directory} is in use by a broker: stop it first") from e
