"""Files of version 1: they are read, truncated and repaired as before, and are not appended to."""

from __future__ import annotations

import errno

import pytest

from penstock.encryption import VERSION, version_of
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.keys import Keystream, MissingKey, parse_keys
from penstock.encryption.version1 import (
    EXTENTS_MAX,
    HEADER_BYTES,
    Extent,
    decode_extents,
    decode_slots,
    encode_extents,
    encode_version1,
    overlaid,
    read_header,
)
from penstock.storage.memory import MemoryFiles
from tests.encryption.keyring import NEW, OLD, RING

PATH = "/f"
BOTH = frozenset({1, VERSION})


def old(content: bytes) -> tuple[MemoryFiles, EncryptedFiles]:
    inner = MemoryFiles()
    inner.write_atomic(PATH, encode_version1(RING, lambda size: b"n" * size, content))
    return inner, EncryptedFiles(inner, RING, accepts=BOTH)


def test_an_old_file_is_read() -> None:
    inner, files = old(b"content" * 1000)
    assert files.read(PATH) == b"content" * 1000 and files.size(PATH) == 7000
    file = files.open(PATH)
    assert file.pread(7, 7) == file.pread_cached(7, 7) == file.pread_verified(7, 7) == b"content"
    assert file.never_written(0, 7000) is None and file.fileno() == -1
    assert not files.takes_appends(PATH) and files.takes_appends("/new")
    assert b"content" not in inner.read(PATH)
    assert decode_slots(inner.read(PATH))[0].name == "old"
    with pytest.raises(MissingKey, match="is encrypted with the key old"):
        read_header(inner.read(PATH), parse_keys(NEW), PATH)


def test_where_version_1_is_over_it_is_not_read() -> None:
    inner, _ = old(b"content")
    files = EncryptedFiles(inner, RING)
    assert files.read(PATH) == b"" and files.open(PATH).pread(10, 0) == b"" and files.takes_appends(PATH)


def test_a_small_file_becomes_a_new_one_when_it_is_appended_to() -> None:
    inner, files = old(b"content")
    file = files.open(PATH)
    file.append(b" and more")
    assert file.pread(100, 0) == files.read(PATH) == b"content and more"
    assert version_of(inner.read(PATH)) == VERSION
    file.truncate(3)
    file.pwrite(b"C", 0)
    assert (
        file.pread_cached(9, 0)
        == file.pread_verified(9, 0)
        == EncryptedFiles(inner, RING).read(PATH)
        == b"Con"
    )
    assert file.never_written(0, 3) == 3 and file.size() == 3
    file.sync()
    file.close()


def test_a_large_file_is_not_appended_to() -> None:
    _, files = old(bytes(2 << 20))
    file = files.open(PATH)
    with pytest.raises(OSError, match="takes no appends") as failure:
        file.append(b"x")
    assert failure.value.errno == errno.EROFS


def test_truncation_and_repair_leave_the_version() -> None:
    inner, files = old(b"0123456789" * 100)
    file = files.open(PATH)
    file.pwrite(b"abc", 5)
    file.truncate(500)
    assert files.read(PATH) == (b"0123456789" * 100)[:5] + b"abc" + (b"0123456789" * 100)[8:500]
    assert version_of(inner.read(PATH)) == 1
    file.truncate(0)
    assert file.size() == 0
    file.append(b"new")
    assert files.read(PATH) == b"new" and version_of(inner.read(PATH)) == VERSION


def test_a_full_list_of_extents_takes_no_repair() -> None:
    """The last nonce was used on in earlier releases."""
    _, files = old(bytes(EXTENTS_MAX * 4))
    file = files.open(PATH)
    with pytest.raises(OSError, match="is full"):
        for number in range(EXTENTS_MAX):
            file.pwrite(b"x", 4 * number)


def test_extents_are_laid_over_each_other() -> None:
    a, b, c, d = (Extent(start, bytes([start + 1]) * 8) for start in (0, 10, 20, 30))
    assert overlaid([a, c], 10, None, b.nonce) == (a, b)
    assert overlaid([a, d], 10, 20, b.nonce) == (a, b, Extent(20, a.nonce), d)
    assert overlaid([a], 0, None, b.nonce) == (Extent(0, b.nonce),)
    page = bytes(256) + encode_extents([a, b, c, d])
    assert decode_extents(page) == (a, b, c, d) and len(page) == HEADER_BYTES
    assert decode_extents(bytes(256) + encode_extents([b, a])) == (b,), "not sorted: damage"


@pytest.mark.parametrize("position", [0, 1, 15, 16, 17, 4096, 1 << 33])
def test_a_keystream_can_start_anywhere(position: int) -> None:
    stream = Keystream(bytes(32))
    whole = stream.apply(b"n" * 8, position - position % 16, bytes(64 + position % 16))
    assert stream.apply(b"n" * 8, position, bytes(64)) == whole[position % 16 :]
    assert stream.apply(b"m" * 8, position, bytes(64)) != whole[position % 16 :]


def test_keys_of_old_and_new_files_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    inner, _ = old(b"content")
    files = EncryptedFiles(inner, parse_keys(f"{NEW},{OLD}"), accepts=BOTH)
    files.open(PATH).append(b"!")
    assert EncryptedFiles(inner, parse_keys(NEW)).read(PATH) == b"content!"
