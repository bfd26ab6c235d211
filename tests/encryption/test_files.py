"""Encrypted files: the same as other files for storage, and nothing but ciphertext on the disk."""

from __future__ import annotations

import errno
import pickle
import random
from pathlib import Path

import pytest

from penstock.broker.base.system_ports import OsFiles
from penstock.encryption import MAGIC
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.header import EXTENTS_MAX, HEADER_BYTES, decode_extents
from penstock.encryption.keys import parse_keys
from penstock.storage.memory import Inode, MemoryFiles
from tests.encryption.keyring import NEW, OLD, RING

PATH = "/f"


def content(files: MemoryFiles, path: str = PATH) -> bytes:
    """The bytes below the encryption."""
    return files.read(path)


def new() -> tuple[MemoryFiles, EncryptedFiles]:
    inner = MemoryFiles()
    return inner, EncryptedFiles(inner, RING)


@pytest.mark.parametrize("seed", range(8))
def test_any_operations_have_the_effect_that_they_have_in_plain_text(seed: int) -> None:
    """Compared with a file in memory; files are reopened, also by other processes, at any time."""
    rng = random.Random(seed)
    inner, files = new()
    plain = MemoryFiles()
    file, model = files.open(PATH, create=True), plain.open(PATH, create=True)
    for _ in range(120):
        size = model.size()
        match rng.randrange(6):
            case 0 | 1:
                data = rng.randbytes(rng.randrange(1, 90))
                file.append(data)
                model.append(data)
            case 2:
                cut = rng.randrange(size + 1)
                file.truncate(cut)
                model.truncate(cut)
            case 3 if size:
                position = rng.randrange(size)
                data = rng.randbytes(rng.randrange(1, 40))
                file.pwrite(data, position)
                model.pwrite(data, position)
            case 4:
                files = files if rng.random() < 0.5 else EncryptedFiles(inner, RING)
                file = files.open(PATH)
            case _:
                position, count = rng.randrange(size + 1), rng.randrange(100)
                assert file.pread(count, position) == model.pread(count, position)
                assert file.pread_cached(count, position) == model.pread(count, position)
        assert file.size() == model.size() == files.size(PATH)
    assert files.read(PATH) == plain.read(PATH) == files.open(PATH).pread(1 << 20, 0)


def test_nothing_is_on_the_disk_in_plain_text() -> None:
    inner, files = new()
    file = files.open(PATH, create=True)
    file.append(b"the secret records")
    file.pwrite(b"SECRET", 4)
    files.write_atomic("/g", b"the secret users")
    assert files.read(PATH) == b"the SECRET records" and files.read("/g") == b"the secret users"
    for path in (PATH, "/g"):
        stored = content(inner, path)
        assert stored.startswith(MAGIC) and len(stored) > HEADER_BYTES
        assert b"secret" not in stored.lower()
    assert file.fileno() == -1, "sendfile would send ciphertext"


def keystream(inner: MemoryFiles, plain: bytes, position: int) -> bytes:
    stored = content(inner)[HEADER_BYTES + position : HEADER_BYTES + position + len(plain)]
    return bytes(a ^ b for a, b in zip(stored, plain, strict=True))


def test_no_keystream_is_used_twice() -> None:
    """Two ciphertexts of one keystream give away the difference of their contents."""
    inner, files = new()
    file = files.open(PATH, create=True)
    file.append(bytes(64))
    seen = [keystream(inner, bytes(64), 0)]
    file.truncate(0)
    file.append(b"x" * 64)
    seen.append(keystream(inner, b"x" * 64, 0))
    # A crash has lost the bytes after the first 16, and the file was not truncated.
    del inner.root["f"].content[HEADER_BYTES + 16 :]  # type: ignore[union-attr]
    crashed = EncryptedFiles(inner, RING).open(PATH)
    crashed.append(b"y" * 48)
    seen.append(bytes(16) + keystream(inner, b"y" * 48, 16))
    assert crashed.pread(64, 0) == b"x" * 16 + b"y" * 48
    crashed.pwrite(b"z" * 16, 32)
    seen.append(bytes(32) + keystream(inner, b"z" * 16, 32) + bytes(16))
    for position in range(64):
        used = [stream[position : position + 4] for stream in seen if any(stream[position : position + 4])]
        assert len(used) == len(set(used)), position
    EncryptedFiles(inner, RING).write_atomic(PATH, bytes(64))
    assert keystream(inner, bytes(64), 0) not in seen


def test_appends_after_an_orderly_end_need_one_extent_per_process() -> None:
    inner, files = new()
    for _ in range(5):
        for _ in range(3):
            file = files.open(PATH, create=True)
            file.append(b"x")
            file.close()
        files = EncryptedFiles(inner, RING)
    assert len(decode_extents(content(inner)[:HEADER_BYTES])) == 5


def test_a_full_table_of_extents_is_reported_and_loses_nothing() -> None:
    inner = MemoryFiles()
    full: list[str] = []
    expected = b""
    for number in range(EXTENTS_MAX + 5):
        file = EncryptedFiles(inner, RING, full=full.append).open(PATH, create=True)
        file.append(b"%03d" % number)
        expected += b"%03d" % number
    assert full == [PATH] * 5
    assert EncryptedFiles(inner, RING).read(PATH) == expected


@pytest.mark.parametrize("kept", [0, 100, HEADER_BYTES - 1])
def test_a_file_without_a_whole_header_is_empty(kept: int) -> None:
    """A crash before the first sync may leave any prefix of a new file."""
    inner, files = new()
    files.open(PATH, create=True).append(b"lost")
    del inner.root["f"].content[kept:]  # type: ignore[union-attr]
    file = EncryptedFiles(inner, RING).open(PATH)
    assert (file.size(), file.pread(10, 0), files.size(PATH), files.read(PATH)) == (0, b"", 0, b"")
    file.append(b"new")
    assert EncryptedFiles(inner, RING).read(PATH) == b"new"


def test_a_damaged_header_is_damaged_content_until_something_is_written() -> None:
    inner, files = new()
    files.open(PATH, create=True).append(b"lost content")
    node = inner.root["f"]
    assert isinstance(node, Inode)
    node.content[:HEADER_BYTES] = bytes(HEADER_BYTES)
    file = EncryptedFiles(inner, RING).open(PATH)
    assert file.size() == 12 and file.pread(12, 0) != b"lost content"
    file.pwrite(b"repaired", 0)
    file.truncate(8)
    file.append(b" and more")
    assert EncryptedFiles(inner, RING).read(PATH) == b"repaired and more"


def test_handles_of_one_file_see_what_the_others_write() -> None:
    _, files = new()
    reader, writer = files.open(PATH, create=True), files.open(PATH)
    writer.append(b"first")
    assert reader.pread(5, 0) == b"first"
    writer.truncate(2)
    writer.append(b"ne")
    assert reader.pread(4, 0) == b"fine"


def test_a_failed_append_leaves_nothing() -> None:
    inner, files = new()
    file = files.open(PATH, create=True)
    file.append(b"kept")
    write = inner.write
    calls = []

    def refuse(*arguments: object) -> None:
        calls.append(arguments)
        raise OSError(errno.ENOSPC, "full")

    inner.write = refuse  # type: ignore[method-assign, assignment]
    with pytest.raises(OSError, match="full"):
        file.append(b"lost")
    inner.write = write  # type: ignore[method-assign]
    assert file.size() == 4
    file.append(b" and more")
    assert files.read(PATH) == b"kept and more"


def test_a_worker_process_reads_the_same_files(tmp_path: Path) -> None:
    files = EncryptedFiles(OsFiles(), parse_keys(f"{NEW},{OLD}"))
    path = str(tmp_path / "f")
    files.open(path, create=True).append(b"content")
    assert pickle.loads(pickle.dumps(files)).read(path) == b"content"
    assert EncryptedFiles(OsFiles(), parse_keys(NEW)).read(path) == b"content", "the first key encrypts"
    lock = files.lock(str(tmp_path / "lock"))
    assert (tmp_path / "lock").stat().st_size == 0
    lock.close()
