"""Encrypting, decrypting and rotating the keys of a directory, interrupted at every step."""

from __future__ import annotations

import secrets
from contextlib import suppress

import pytest

from penstock.encryption import IN_PROGRESS, META, PLAIN, VERSION
from penstock.encryption.conversion import decrypt_directory, encrypt_directory, rotate_directory
from penstock.encryption.directory import file_states
from penstock.encryption.files import UNREADABLE, EncryptedFiles
from penstock.encryption.head import COPIES_AT, HEADER_BYTES
from penstock.encryption.keys import MissingKey, format_key, parse_keys
from penstock.encryption.version1 import encode_version1
from penstock.model.errors import PenstockError
from penstock.storage.memory import MemoryFiles
from tests.encryption.interrupted_disk import Disk, Interrupted
from tests.encryption.keyring import NEW, OLD, RING

FOLDER = "/data/topics/t/partition-0"
SEGMENT = f"{FOLDER}/0.log"
CONTENT = {
    f"/data/{META}": b'{"directory.id": "d", "cluster.id": "c", "node.id": 1}',
    SEGMENT: b"records" * 20_000,
    f"{FOLDER}/0.index": b"",
    f"{FOLDER}/leader-epoch-checkpoint": b"0\n0\n",
    f"{FOLDER}/partition.metadata": b"version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAQ\npartition: 0\n",
}
FILES = sum(1 for data in CONTENT.values() if data)
CHANGES = 45


def disk(version: int = PLAIN) -> Disk:
    """A data directory in plain text, or in version 1 of the encryption."""
    files = Disk()
    files.makedirs("/data/topics/t/partition-0")
    for path, data in CONTENT.items():
        encoded = encode_version1(RING, secrets.token_bytes, data) if version and data else data
        file = files.open(path, create=True)
        if encoded:
            file.append(encoded)
    return files


def ignore(old: str, new: str) -> None: ...


def read_all(files: MemoryFiles | EncryptedFiles) -> dict[str, bytes]:
    return {path: files.read(path) for path in CONTENT}


@pytest.mark.parametrize("version", [PLAIN, 1])
def test_a_directory_is_encrypted_and_decrypted(version: int) -> None:
    files = disk(version)
    encrypted = EncryptedFiles(files, RING)
    converted: list[str] = []
    assert encrypt_directory(encrypted, "/data", lambda old, new: converted.append(old)) == FILES
    assert sorted(converted) == sorted(path for path, data in CONTENT.items() if data)
    assert converted[-1] == f"/data/{META}", "its header has the version of the directory"
    assert read_all(EncryptedFiles(files, RING)) == CONTENT and b"records" not in files.read(SEGMENT)
    assert encrypt_directory(encrypted, "/data", ignore) == 0
    assert decrypt_directory(encrypted, "/data", ignore) == FILES
    assert read_all(files) == CONTENT
    assert not files.exists(f"/data/{IN_PROGRESS}")


@pytest.mark.parametrize("version", [PLAIN, 1])
@pytest.mark.parametrize("number", range(CHANGES))
def test_an_interrupted_conversion_is_finished_by_another_one(number: int, version: int) -> None:
    files = disk(version)
    files.changes_left = number
    with suppress(Interrupted):
        encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    files.changes_left = None
    source = MemoryFiles.read if version == PLAIN else None
    is_old = source is not None and {path: source(files, path) for path in CONTENT} == CONTENT
    old = EncryptedFiles(files, RING, accepts=frozenset({1, VERSION}))
    is_whole = is_old or read_all(EncryptedFiles(files, RING)) == CONTENT or read_all(old) == CONTENT
    assert is_whole or files.exists(f"/data/{IN_PROGRESS}"), "a broker would use half of it"
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    assert read_all(EncryptedFiles(files, RING)) == CONTENT
    assert file_states(files, "/data") == {(VERSION, "old"): FILES}


@pytest.mark.parametrize("number", range(CHANGES))
def test_an_interrupted_decryption_is_finished_by_another_one(number: int) -> None:
    files = disk()
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    files.changes_left = number
    with suppress(Interrupted):
        decrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    files.changes_left = None
    assert files.exists(f"/data/{IN_PROGRESS}") or CONTENT in (
        read_all(files),
        read_all(EncryptedFiles(files, RING)),
    )
    decrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    assert read_all(files) == CONTENT


@pytest.mark.parametrize("number", range(4 * FILES + 2))
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
    assert file_states(files, "/data") == {(VERSION, "new"): FILES}
    assert read_all(EncryptedFiles(files, parse_keys(NEW))) == CONTENT
    with pytest.raises(MissingKey):
        EncryptedFiles(files, RING).read(f"/data/{META}")
    assert {path: files.read(path)[HEADER_BYTES:] for path in CONTENT} == before, "content stays as it is"
    assert rotate_directory(EncryptedFiles(files, both), "/data", ignore) == 0


def test_a_rotation_includes_files_that_were_set_aside() -> None:
    """A key provider forgets the old key after a rotation."""
    files = disk()
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    files.rename(SEGMENT, SEGMENT + UNREADABLE)
    lost = EncryptedFiles(Disk(), parse_keys(format_key("lost", bytes(32))))
    lost.write_atomic("/f", b"x")
    files.write_atomic(f"{SEGMENT}{UNREADABLE}.1", lost.inner.read("/f"))
    rotate_directory(EncryptedFiles(files, parse_keys(f"{NEW},{OLD}")), "/data", ignore)
    files.rename(SEGMENT + UNREADABLE, SEGMENT)
    assert EncryptedFiles(files, parse_keys(NEW)).read(SEGMENT) == CONTENT[SEGMENT]


@pytest.mark.parametrize("copy", COPIES_AT)
def test_a_torn_header_during_a_rotation_costs_nothing(copy: int) -> None:
    files = disk()
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    both = parse_keys(f"{NEW},{OLD}")
    for number in range(4):
        files.changes_left = number
        with suppress(Interrupted):
            rotate_directory(EncryptedFiles(files, both), "/data", ignore)
        files.changes_left = None
        torn = files.open(SEGMENT)
        page = torn.pread(HEADER_BYTES, 0)
        torn.pwrite(bytes(512), copy)
        assert read_all(EncryptedFiles(files, both)) == CONTENT
        torn.pwrite(page, 0)


def test_a_rotation_needs_the_old_key() -> None:
    files = disk()
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    with pytest.raises(MissingKey, match="is encrypted with the key old"):
        rotate_directory(EncryptedFiles(files, parse_keys(NEW)), "/data", ignore)
    with pytest.raises(PenstockError, match="not encrypted"):
        rotate_directory(EncryptedFiles(disk(), RING), "/data", ignore)
    with pytest.raises(PenstockError, match="has files of version 1: `penstock encryption apply`"):
        rotate_directory(EncryptedFiles(disk(1), RING), "/data", ignore)


def test_a_folder_without_its_identity_is_refused() -> None:
    """The files in it would have another place as soon as the broker has written the identity."""
    files = disk()
    files.remove("/data/topics/t/partition-0/partition.metadata")
    with pytest.raises(PenstockError, match="partition-0 does not have the id of its topic"):
        encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    assert not files.exists(f"/data/{IN_PROGRESS}")


def test_damaged_and_foreign_files_are_not_decrypted() -> None:
    files = disk()
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    stored = files.open(SEGMENT)
    byte = stored.pread(1, HEADER_BYTES + 100)
    stored.pwrite(bytes([byte[0] ^ 1]), HEADER_BYTES + 100)
    with pytest.raises(PenstockError, match=r"0\.log is damaged .*: move it away"):
        decrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    files.write_atomic(SEGMENT, files.read(f"{FOLDER}/leader-epoch-checkpoint"))
    with pytest.raises(PenstockError, match="it is damaged or another file"):
        decrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    files.remove(SEGMENT)
    decrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    assert files.read(f"/data/{META}") == CONTENT[f"/data/{META}"]


@pytest.mark.parametrize("damaged", [SEGMENT, f"/data/{META}"])
def test_a_damaged_header_is_not_taken_for_plain_text(damaged: str) -> None:
    """The ciphertext would be encrypted once more, and then be authentic."""
    files = disk()
    encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    file = files.open(damaged)
    for copy in COPIES_AT:
        file.pwrite(b"\xff" * 4, copy)
    before = files.read(damaged)
    with pytest.raises(PenstockError, match="is damaged: it has no header of the encryption"):
        encrypt_directory(EncryptedFiles(files, RING), "/data", ignore)
    assert files.read(damaged) == before


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
