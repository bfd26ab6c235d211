"""Encrypting, decrypting and rotating the keys of a directory, interrupted at every step."""

from __future__ import annotations

from contextlib import suppress

import pytest

from penstock.encryption import IN_PROGRESS, META
from penstock.encryption.conversion import decrypt_directory, encrypt_directory, rotate_directory
from penstock.encryption.directory import key_names
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.header import EXTENTS_MAX, HEADER_BYTES, decode_extents
from penstock.encryption.keys import MissingKey, parse_keys
from penstock.model.errors import PenstockError
from penstock.storage.memory import MemoryFiles
from tests.encryption.keyring import NEW, OLD, RING

CONTENT = {f"/data/{META}": b"{}", "/data/topics/t/0.log": b"records" * 1000, "/data/topics/t/0.index": b""}
CHANGES = 30


class Interrupted(Exception):
    """The process ends."""


class Disk(MemoryFiles):
    """Files in memory that end the process at the n-th change."""

    changes_left: int | None = None

    def _change(self) -> None:
        if self.changes_left is not None:
            if not self.changes_left:
                raise Interrupted
            self.changes_left -= 1

    def write(self, *arguments: object) -> None:
        self._change()
        super().write(*arguments)  # type: ignore[arg-type]

    def move(self, *arguments: object) -> None:
        self._change()
        super().move(*arguments)  # type: ignore[arg-type]

    def unlink(self, *arguments: object) -> None:
        self._change()
        super().unlink(*arguments)  # type: ignore[arg-type]


def disk() -> Disk:
    files = Disk()
    files.makedirs("/data/topics/t")
    for path, data in CONTENT.items():
        files.open(path, create=True).append(data) if data else files.open(path, create=True)
    return files


def ignore(old: str, new: str) -> None: ...


def read_all(files: MemoryFiles | EncryptedFiles) -> dict[str, bytes]:
    return {path: files.read(path) for path in CONTENT}


def test_a_directory_is_encrypted_and_decrypted() -> None:
    files = disk()
    encrypted = EncryptedFiles(files, RING)
    converted: list[str] = []
    assert encrypt_directory(encrypted, "/data", lambda old, new: converted.append(old)) == 2
    assert sorted(converted) == sorted(path for path, data in CONTENT.items() if data)
    assert read_all(encrypted) == CONTENT and b"records" not in files.read("/data/topics/t/0.log")
    assert encrypt_directory(encrypted, "/data", ignore) == 0
    assert decrypt_directory(encrypted, "/data", ignore) == 2
    assert read_all(files) == CONTENT
    assert not files.exists(f"/data/{IN_PROGRESS}")


@pytest.mark.parametrize("number", range(CHANGES))
def test_an_interrupted_conversion_is_finished_by_another_one(number: int) -> None:
    files = disk()
    encrypted = EncryptedFiles(files, RING)
    files.changes_left = number
    with suppress(Interrupted):
        encrypt_directory(encrypted, "/data", ignore)
    files.changes_left = None
    is_whole = read_all(files) == CONTENT or read_all(encrypted) == CONTENT
    assert is_whole or files.exists(f"/data/{IN_PROGRESS}"), "a broker would use half of it"
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    assert read_all(EncryptedFiles(files, RING)) == CONTENT
    assert key_names(files, "/data") == {"old": 2}


@pytest.mark.parametrize("number", range(8))
def test_an_interrupted_rotation_leaves_files_that_both_keys_open(number: int) -> None:
    files = disk()
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    both = parse_keys(f"{NEW},{OLD}")
    before = {path: files.read(path)[HEADER_BYTES:] for path in CONTENT}
    files.changes_left = number
    with suppress(Interrupted):
        rotate_directory(EncryptedFiles(files, both), "/data", ignore)
    files.changes_left = None
    assert read_all(EncryptedFiles(files, both)) == CONTENT
    rotate_directory(EncryptedFiles(files, both), "/data", ignore)
    assert key_names(files, "/data") == {"new": 2}
    assert read_all(EncryptedFiles(files, parse_keys(NEW))) == CONTENT
    with pytest.raises(MissingKey):
        EncryptedFiles(files, RING).read(f"/data/{META}")
    assert {path: files.read(path)[HEADER_BYTES:] for path in CONTENT} == before, "content stays as it is"
    assert rotate_directory(EncryptedFiles(files, both), "/data", ignore) == 0


def test_a_rotation_needs_the_old_key() -> None:
    files = disk()
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    with pytest.raises(MissingKey, match="is encrypted with the key old"):
        rotate_directory(EncryptedFiles(files, parse_keys(NEW)), "/data", ignore)
    with pytest.raises(PenstockError, match="not encrypted"):
        rotate_directory(EncryptedFiles(disk(), RING), "/data", ignore)


def test_a_rotation_writes_files_with_many_extents_anew() -> None:
    files = disk()
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    path = "/data/topics/t/0.log"
    for _ in range(EXTENTS_MAX // 2 + 1):
        EncryptedFiles(files, RING).open(path).append(b"x")
    expected = EncryptedFiles(files, RING).read(path)
    assert rotate_directory(EncryptedFiles(files, RING), "/data", ignore) == 1
    assert EncryptedFiles(files, RING).read(path) == expected
    assert len(decode_extents(files.read(path)[:HEADER_BYTES])) == 1


def test_other_directories_and_running_brokers_are_refused() -> None:
    files = disk()
    files.lock("/data/lock")

    def lock(path: str) -> object:
        raise BlockingIOError

    files.lock = lock  # type: ignore[method-assign, assignment]
    with pytest.raises(PenstockError, match="is in use by a broker"):
        encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    with pytest.raises(PenstockError, match=r"has no meta\.json"):
        encrypt_directory(EncryptedFiles(files, RING), "/elsewhere", ignore)
