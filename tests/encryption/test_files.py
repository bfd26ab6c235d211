"""Encrypted files: the same as other files for storage, and nothing but authentic ciphertext on the disk."""

from __future__ import annotations

import errno
import pickle
import random
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.base.system_ports import OsFiles
from penstock.encryption import MAGIC, VERSION, block_cache
from penstock.encryption.content import is_whole
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.frames import BLOCK_BYTES, CAPACITY, FIRST_BLOCK, FrameKeys
from penstock.encryption.head import HEADER_BYTES, NewerVersion
from penstock.encryption.keys import MissingKey, parse_keys
from penstock.encryption.open_file import EncryptedFile
from penstock.ports import File
from penstock.storage.memory import Inode, MemoryFiles
from penstock.testing.disk import FaultyDisk, PowerLoss
from tests.encryption.keyring import NEW, OLD, OTHER, RING

PATH = "/f"


def new(inner: MemoryFiles | None = None) -> tuple[MemoryFiles, EncryptedFiles]:
    inner = inner or MemoryFiles()
    return inner, EncryptedFiles(inner, RING)


def inode(files: MemoryFiles, path: str = PATH) -> bytearray:
    """The bytes below the encryption."""
    node = files.root[path.strip("/")]
    assert isinstance(node, Inode)
    return node.content


def sizes(rng: random.Random) -> int:
    """Small appends as of small batches, and large ones that reach over blocks."""
    return rng.choice((rng.randrange(1, 90), rng.randrange(1, 2000), rng.randrange(1, 3 * BLOCK_BYTES)))


@pytest.mark.parametrize("seed", range(24))
def test_any_operations_have_the_effect_that_they_have_in_plain_text(seed: int) -> None:
    """Compared with a file in memory; files are reopened, also by other processes, at any time."""
    rng = random.Random(seed)
    inner, files = new()
    plain = MemoryFiles()
    file, model = files.open(PATH, create=True), plain.open(PATH, create=True)
    for _ in range(120):
        size = model.size()
        match rng.randrange(7):
            case 0 | 1 | 2:
                data = rng.randbytes(sizes(rng))
                file.append(data)
                model.append(data)
            case 3 if rng.random() < 0.4:
                cut = rng.choice((0, rng.randrange(size + 1), max(0, size - rng.randrange(1, 200))))
                file.truncate(cut)
                model.truncate(cut)
            case 4 if size:
                position = rng.randrange(size)
                data = rng.randbytes(sizes(rng))
                file.pwrite(data, position)
                model.pwrite(data, position)
            case 5:
                files = files if rng.random() < 0.5 else EncryptedFiles(inner, RING)
                file = files.open(PATH)
            case _:
                position, count = rng.randrange(size + 1), rng.choice((rng.randrange(100), sizes(rng)))
                assert file.pread(count, position) == model.pread(count, position)
                assert file.pread_cached(count, position) == model.pread(count, position)
                assert file.pread_verified(count, position) == model.pread(count, position)
                assert file.never_written(position, size) == max(size, position)
        assert file.size() == model.size() == files.size(PATH)
    assert files.read(PATH) == plain.read(PATH) == files.open(PATH).pread(1 << 30, 0)


@pytest.mark.parametrize("seed", range(60))
def test_a_crash_takes_no_more_than_it_takes_of_a_plain_file(seed: int) -> None:
    """Synced content is there after a power loss, and a prefix of what was written behind it."""
    rng = random.Random(seed)
    disk = FaultyDisk(random.Random(seed))
    disk.settle()
    files = EncryptedFiles(disk, RING)
    file = files.open(PATH, create=True)
    files.sync_dir("/")
    synced, written, truncated_to = b"", b"", None
    disk.crash_at = disk.changes + rng.randrange(1, 60)
    try:
        while True:
            match rng.randrange(8):
                case 0:
                    file.sync()
                    synced, truncated_to = written, None
                case 1 if len(written) > len(synced) + 1:
                    cut = rng.randrange(len(synced), len(written))
                    truncated_to = len(written) if truncated_to is None else max(truncated_to, len(written))
                    file.truncate(cut)
                    written = written[:cut]
                case _:
                    data = rng.randbytes(sizes(rng))
                    expected = written + data
                    written = expected
                    file.append(data)
    except PowerLoss:
        pass
    disk.restart()
    file = EncryptedFiles(disk, RING).open(PATH, create=True)
    found = file.pread(file.size(), 0)
    assert found.startswith(synced)
    if truncated_to is None:
        sound = file.never_written(len(synced), len(found))
        assert sound is not None and written.startswith(found[:sound])
    # Recovery cuts what was not written, and appends.
    kept = min(len(found), file.never_written(len(synced), len(found)) or 0)
    file.truncate(kept)
    file.append(b"after the crash")
    again = EncryptedFiles(disk, RING).open(PATH)
    assert again.pread(1 << 30, 0) == found[:kept] + b"after the crash"


def test_nothing_is_on_the_disk_in_plain_text() -> None:
    inner, files = new()
    file = files.open(PATH, create=True)
    file.append(b"the secret records")
    file.pwrite(b"SECRET", 4)
    files.write_atomic("/g", b"the secret users")
    assert files.read(PATH) == b"the SECRET records" and files.read("/g") == b"the secret users"
    for path in (PATH, "/g"):
        stored = inner.read(path)
        assert stored.startswith(MAGIC + bytes([VERSION])) and len(stored) > HEADER_BYTES
        assert b"secret" not in stored.lower()
    assert file.fileno() == -1, "sendfile would send ciphertext"


@pytest.fixture
def nonces(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[bytes, bytes]]:
    """How often each pair of key and nonce was used to encrypt."""
    used: Counter[tuple[bytes, bytes]] = Counter()
    from cryptography.hazmat.primitives.ciphers import aead

    real = aead.AESGCM

    class Counting:
        def __init__(self, key: bytes) -> None:
            self._key, self._real = key, real(key)

        def encrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes:
            used[self._key, nonce] += 1
            return bytes(self._real.encrypt(nonce, data, associated))

        def decrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes:
            return bytes(self._real.decrypt(nonce, data, associated))

    monkeypatch.setattr(aead, "AESGCM", Counting)
    return used


def test_no_nonce_is_used_twice_in_300_starts(nonces: Counter[tuple[bytes, bytes]]) -> None:
    """Version 1 used key stream again from the 240th start on: its list of nonces was full."""
    inner = MemoryFiles()
    expected = b"x" * 100
    EncryptedFiles(inner, RING).open(PATH, create=True).append(expected)
    for number in range(300):
        file = EncryptedFiles(inner, RING).open(PATH)
        kept = expected[: 50 + number % 7]
        file.truncate(len(kept))
        file.append(b"%05d" % number * 10)
        expected = kept + b"%05d" % number * 10
        if number % 3 == 0:
            # A crash loses the append, and the next one has the same position.
            del inode(inner)[-10:]
            expected = kept
            assert EncryptedFiles(inner, RING).open(PATH).size() == len(expected)
    assert EncryptedFiles(inner, RING).read(PATH) == expected
    assert len(nonces) > 300 and set(nonces.values()) == {1}


def damage(inner: MemoryFiles, position: int, path: str = PATH) -> None:
    inode(inner, path)[position] ^= 1


def test_a_flipped_bit_costs_one_frame_and_is_repaired_in_place() -> None:
    inner, files = new()
    data = random.Random(1).randbytes(5 * CAPACITY)
    files.open(PATH, create=True).append(data)
    for position in range(FIRST_BLOCK, len(inode(inner)), 7001):
        damage(inner, position)
        reports: list[tuple[str, str]] = []
        file = EncryptedFiles(inner, RING, report=lambda *report, to=reports: to.append(report)).open(PATH)
        block = (position - FIRST_BLOCK) // BLOCK_BYTES
        start, stop = block * CAPACITY, (block + 1) * CAPACITY
        if start < file.size():
            found = file.pread(len(data), 0)
            assert found[:start] == data[:start] and found[stop:] == data[stop : len(found)]
            assert set(found[start:stop]) == {0xFF} and reports
            assert file.pread(100, stop) == data[stop : stop + 100] or stop >= len(data)
            with pytest.raises(OSError, match="not authentic") as failure:
                file.pread_verified(10, start)
            assert failure.value.errno == errno.EBADMSG
            assert file.never_written(start, len(found)) == len(found), "it was written, and is damaged"
            # A repair has whole batches, in pieces.
            for piece in range(max(0, start - 500), min(len(data), stop + 500), 10_000):
                file.pwrite(data[piece : min(piece + 10_000, stop + 500)], piece)
        else:
            assert file.size() == start, "the last header is lost, and with it the end of the file"
            file.append(data[start:])
        assert EncryptedFiles(inner, RING).read(PATH) == data


@pytest.mark.parametrize("seed", range(40))
def test_damage_of_small_frames_is_repaired(seed: int) -> None:
    """Any damage in the middle: nothing wrong is read, and a repair brings everything back."""
    rng = random.Random(seed)
    inner, files = new()
    file = files.open(PATH, create=True)
    data = b""
    while len(data) < 100_000:
        if rng.random() < 0.02 and data:
            data = data[: rng.randrange(len(data))]
            file.truncate(len(data))
        piece = rng.randbytes(rng.randrange(1, 700))
        file.append(piece)
        data += piece
    first = rng.randrange(FIRST_BLOCK, len(inode(inner)) - BLOCK_BYTES)
    for position in range(first, first + rng.choice((1, 40, 3000, 40_000))):
        inode(inner)[min(position, len(inode(inner)) - BLOCK_BYTES)] ^= rng.randrange(1, 256)
    file = EncryptedFiles(inner, RING).open(PATH)
    found = file.pread(len(data), 0)
    assert len(found) == len(data)
    wrong = [n for n in range(len(data)) if found[n] != data[n]]
    assert all(found[n] == 0xFF for n in wrong)
    assert len(wrong) <= 3 * BLOCK_BYTES
    for position in range(0, len(data), 9_000):
        file.pwrite(data[position : position + 9_000], position)
    assert EncryptedFiles(inner, RING).read(PATH) == data
    file.append(b"more")
    assert EncryptedFiles(inner, RING).read(PATH) == data + b"more"


@pytest.mark.parametrize("kept", [0, 100, HEADER_BYTES - 1])
def test_a_file_without_a_whole_header_is_empty(kept: int) -> None:
    """A crash before the first sync may leave any prefix of a new file."""
    inner, files = new()
    files.open(PATH, create=True).append(b"lost")
    del inode(inner)[kept:]
    file = EncryptedFiles(inner, RING).open(PATH)
    assert file.size() == 0 and file.pread(10, 0) == b""
    file.append(b"new")
    assert EncryptedFiles(inner, RING).read(PATH) == b"new"
    assert inner.listdir("/") == ["f"], "nothing was set aside"


@pytest.mark.parametrize("at", [0, 20, 100, 210])
def test_one_damaged_copy_of_the_header_costs_nothing(at: int) -> None:
    inner, files = new()
    files.open(PATH, create=True).append(b"kept")
    damage(inner, at)
    assert EncryptedFiles(inner, RING).open(PATH).pread(10, 0) == b"kept"
    assert EncryptedFiles(inner, RING).read(PATH) == b"kept"
    damage(inner, 2048 + at)
    file = EncryptedFiles(inner, RING).open(PATH)
    assert file.size() == 0 and EncryptedFiles(inner, RING).read(PATH) == b""
    file.append(b"new")
    assert inner.listdir("/") == ["f", "f.unreadable"]
    assert EncryptedFiles(inner, RING).read(PATH) == b"new"


def test_a_file_of_another_place_is_empty_and_is_kept() -> None:
    inner, files = new()
    files.write_atomic("/a", b"content of a")
    files.write_atomic("/b", b"content of b")
    inner.write_atomic("/b", inner.read("/a"))
    reports: list[str] = []
    files = EncryptedFiles(inner, RING, report=lambda path, reason: reports.append(f"{path} {reason}"))
    assert files.read("/b") == b"" and files.size("/b") == 0
    assert "/b it is the file directory///a" in reports
    file = files.open("/b")
    assert file.pread(100, 0) == b"" and file.size() == 0
    file.append(b"new")
    assert files.read("/b") == b"new"
    assert inner.read("/b.unreadable") == inner.read("/a")


def test_plain_text_and_later_versions_are_not_read() -> None:
    inner, files = new()
    inner.write_atomic(PATH, b"plain text of an attacker")
    assert files.read(PATH) == b"" and files.open(PATH).pread(100, 0) == b""
    inner.write_atomic(PATH, (MAGIC + b"\x03").ljust(5000, b"x"))
    with pytest.raises(NewerVersion, match="version 3 of the encryption, this Penstock knows 2: upgrade"):
        files.open(PATH)


def test_blocks_cannot_be_exchanged() -> None:
    """Within a file, and between files of the same place."""
    inner, files = new()
    data = bytes(range(256)) * 512
    files.open(PATH, create=True).append(data)
    stored = inode(inner)
    first, second = (
        slice(FIRST_BLOCK, FIRST_BLOCK + BLOCK_BYTES),
        slice(FIRST_BLOCK + BLOCK_BYTES, FIRST_BLOCK + 2 * BLOCK_BYTES),
    )
    older = bytes(stored)
    stored[first], stored[second] = stored[second], stored[first]
    found = EncryptedFiles(inner, RING).open(PATH).pread(len(data), 0)
    assert set(found[: 2 * CAPACITY]) == {0xFF} and found[2 * CAPACITY :] == data[2 * CAPACITY :]
    files.write_atomic(PATH, data)
    inode(inner)[first] = older[first]
    assert set(files.open(PATH).pread(CAPACITY, 0)) == {0xFF}


def test_frames_from_before_a_truncation_do_not_come_back() -> None:
    """The generation is part of the key: the disk may still have the old frames, or be given them again."""
    inner, files = new()
    file = files.open(PATH, create=True)
    file.append(b"a" * 1000)
    file.append(b"old" * 1000)
    older = bytes(inode(inner))
    file.truncate(1000)
    header = bytes(inode(inner)[:HEADER_BYTES])
    inode(inner)[:] = header + older[HEADER_BYTES:]
    assert EncryptedFiles(inner, RING).read(PATH) == b"a" * 1000, "the file was not made shorter"
    file.append(b"new" * 1000)
    del inode(inner)[len(older) :]
    file = EncryptedFiles(inner, RING).open(PATH)
    inode(inner)[-3042:] = older[-3042:]
    found = EncryptedFiles(inner, RING).open(PATH).pread(5000, 0)
    assert found == b"a" * 1000


def test_a_truncation_within_a_frame_hides_the_rest() -> None:
    inner, files = new()
    file = files.open(PATH, create=True)
    file.append(b"a" * 1000)
    for size in (900, 700, 300):
        file.truncate(size)
        assert EncryptedFiles(inner, RING).read(PATH) == b"a" * size
    file.append(b"b" * 100)
    assert EncryptedFiles(inner, RING).read(PATH) == b"a" * 300 + b"b" * 100
    damage(inner, len(inode(inner)) - 1)
    found = EncryptedFiles(inner, RING).open(PATH).pread(1000, 0)
    assert found == b"a" * 300 + b"\xff" * 100, "the header has the end of the last truncation"
    inner, files = new()
    file = files.open(PATH, create=True)
    file.append(b"a" * 1000)
    file.truncate(300)
    file.append(b"b" * 100)
    file.truncate(350)
    file.append(b"c" * 1000)
    damage(inner, FIRST_BLOCK + 1042 + 50)
    found = EncryptedFiles(inner, RING).open(PATH).pread(2000, 0)
    assert found == b"\xff" * 350 + b"c" * 1000, (
        "how much of the first frame counts, only the second one says"
    )


def failing(file: File, change: Callable[[], None]) -> None:
    with pytest.raises(OSError, match="full"):
        change()


def test_a_failed_append_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    inner, files = new()
    file = files.open(PATH, create=True)
    file.append(b"kept")

    def full(self: MemoryFiles, inode: Inode, data: bytes, position: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryFiles, "write", full)
        failing(file, lambda: file.append(b"lost"))
        failing(file, lambda: files.open("/g", create=True).append(b"lost"))
    assert file.size() == 4 and file.pread(10, 0) == b"kept"
    file.append(b" and more")
    assert EncryptedFiles(inner, RING).read(PATH) == b"kept and more"


def test_keys_of_files_are_needed() -> None:
    inner, files = new()
    files.open(PATH, create=True).append(b"secret")
    with pytest.raises(MissingKey, match="is encrypted with the key old, which is not among"):
        EncryptedFiles(inner, parse_keys(NEW)).open(PATH)
    assert EncryptedFiles(inner, parse_keys(OTHER)).read(PATH) == b"", "another key of the same name"
    assert EncryptedFiles(inner, parse_keys(f"{NEW},{OLD}")).read(PATH) == b"secret"


def test_handles_of_one_file_agree() -> None:
    _, files = new()
    first = files.open(PATH, create=True)
    second = files.open(PATH)
    first.append(b"first")
    assert second.pread(10, 0) == b"first"
    second.append(b" second")
    assert first.pread(20, 0) == b"first second" and first.size() == 12
    first.truncate(3)
    assert second.pread(20, 0) == b"fir"
    second.truncate(0)
    assert first.size() == 0 and first.pread(1, 0) == b""
    first.append(b"again")
    assert second.pread(10, 0) == b"again"


def test_worker_processes_get_the_files(tmp_path: Path) -> None:
    files = EncryptedFiles(OsFiles(), RING)
    path = f"{tmp_path}/f"
    file = files.open(path, create=True)
    file.append(b"content" * 10_000)
    file.sync()
    there = pickle.loads(pickle.dumps(files))
    assert there.read(path) == b"content" * 10_000
    assert isinstance(there.open(path), EncryptedFile) and there.size(path) == 70_000
    assert not file.sync_volume() or True
    file.close()


def test_the_size_of_a_file_is_limited_so_that_nonces_stay_rare() -> None:
    _, files = new()
    file = files.open(PATH, create=True)
    file.append(b"x")
    assert isinstance(file, EncryptedFile) and file._content is not None
    file._content.tail = 1 << 37
    with pytest.raises(OSError, match="cannot become that large"):
        file.append(b"x")


def test_frame_keys_differ_by_generation_and_place() -> None:
    def sealed(place: bytes, generation: int) -> bytes:
        return FrameKeys(bytes(32), place, bytes).seal(FIRST_BLOCK, generation, 0, b"content")

    assert len({sealed(place, generation) for place in (b"a", b"b") for generation in (0, 1)}) == 4


def test_a_block_that_was_truncated_while_it_was_read_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker reads a block of a follower's log while the event loop truncates the log."""
    _, files = new()
    file = files.open(PATH, create=True)
    for _ in range(3):
        file.append(b"o" * CAPACITY)
    end = 3 * CAPACITY

    def truncated(*arguments: Any) -> bool:
        monkeypatch.setattr(block_cache, "is_whole", is_whole)
        found = is_whole(*arguments)
        file.truncate(CAPACITY // 2)
        return found

    monkeypatch.setattr(block_cache, "is_whole", truncated)
    files.open(PATH).pread(100, end - 200)
    file.append(b"n" * (end - CAPACITY // 2))
    assert file.pread(100, 2 * CAPACITY + 100) == b"n" * 100


class Counted:
    """A file that counts the bytes that are read from it."""

    def __init__(self, file: File) -> None:
        self.file, self.read = file, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def pread(self, size: int, position: int) -> bytes:
        self.read += size
        return self.file.pread(size, position)


def test_a_damaged_header_does_not_make_reads_and_repairs_read_the_rest_of_the_file() -> None:
    inner, files = new()
    file = files.open(PATH, create=True)
    blocks = 200
    data = random.Random(1).randbytes(blocks * CAPACITY)
    file.append(data)
    damage(inner, FIRST_BLOCK + 2 * BLOCK_BYTES + 8)
    reader = EncryptedFiles(inner, RING).open(PATH)
    assert isinstance(reader, EncryptedFile)
    counted = Counted(reader._inner)
    reader._inner = counted
    for block in (1, 3):
        assert reader.pread(10, block * CAPACITY + 5) == data[block * CAPACITY + 5 :][:10]
    with pytest.raises(OSError, match="not authentic"):
        reader.pread_verified(10, 2 * CAPACITY + 5)
    reader.pwrite(data[2 * CAPACITY : 3 * CAPACITY], 2 * CAPACITY)
    assert reader.pread_verified(10, 2 * CAPACITY + 5) == data[2 * CAPACITY + 5 :][:10]
    assert counted.read < blocks * BLOCK_BYTES / 4


def test_a_damaged_header_does_not_hide_the_frames_behind_it() -> None:
    """The next append would remove them: it writes behind the last frame."""
    inner, files = new()
    file = files.open(PATH, create=True)
    while len(inode(inner)) <= FIRST_BLOCK + BLOCK_BYTES:
        file.append(b"a" * 100)
    start = file.size() - 100
    for value in (b"b", b"c", b"d"):
        file.append(value * 100)
    # The first frame of the second block claims to begin 256 bytes later.
    inode(inner)[FIRST_BLOCK + BLOCK_BYTES + 12] += 1
    file = EncryptedFiles(inner, RING).open(PATH)
    assert file.size() == start + 400
    file.append(b"e" * 100)
    assert file.pread(500, start) == b"".join(value * 100 for value in (b"\xff", b"b", b"c", b"d", b"e"))


def first_frame(inner: MemoryFiles, block: int) -> int:
    """The position of the first frame of a block."""
    assert len(inode(inner)) > FIRST_BLOCK + block * BLOCK_BYTES
    return FIRST_BLOCK + block * BLOCK_BYTES


@pytest.mark.parametrize("block", [0, 1, 2])
@pytest.mark.parametrize("length", [600, 4_000, 20_001, 32_000, CAPACITY])
def test_a_damaged_length_hides_no_other_frame(block: int, length: int) -> None:
    """The first frame of a block claims to reach over those behind it. They are read, and one is repaired."""
    inner, files = new()
    file = files.open(PATH, create=True)
    rng = random.Random(length)
    data = rng.randbytes(500)
    file.append(data)
    starts = {0: (0, 500)}
    while len(inode(inner)) < FIRST_BLOCK + 3 * BLOCK_BYTES - 2_000:
        piece = rng.randbytes(rng.randrange(100, 900))
        at = len(inode(inner))
        file.append(piece)
        if (len(inode(inner)) - FIRST_BLOCK) // BLOCK_BYTES != (at - FIRST_BLOCK) // BLOCK_BYTES:
            inside = len(inode(inner)) - FIRST_BLOCK - len(starts) * BLOCK_BYTES - 42
            starts[len(starts)] = (len(data) + len(piece) - inside, inside)
        data += piece
    start, size = starts[block]
    at = first_frame(inner, block)
    assert int.from_bytes(inode(inner)[at : at + 2]) == size
    inode(inner)[at : at + 2] = length.to_bytes(2)
    file = EncryptedFiles(inner, RING).open(PATH)
    damaged = data[:start] + b"\xff" * size + data[start + size :]
    assert file.size() == len(data)
    assert file.pread(len(data), 0) == damaged == EncryptedFiles(inner, RING).read(PATH)
    assert file.pread_verified(200, start + size) == data[start + size :][:200]
    file.append(b"more")
    file.pwrite(data[start : start + size], start)
    assert EncryptedFiles(inner, RING).read(PATH) == data + b"more"


@pytest.mark.parametrize("seed", range(30))
def test_damaged_headers_cost_their_own_frames_only(seed: int) -> None:
    rng = random.Random(seed)
    inner, files = new()
    file = files.open(PATH, create=True)
    data, frames = b"", []
    while len(data) < 70_000:
        piece = rng.randbytes(rng.choice((rng.randrange(20, 80), rng.randrange(20, 3_000))))
        at = len(inode(inner))
        file.append(piece)
        if len(inode(inner)) == at + len(piece) + 42:
            frames.append((at, len(data), len(piece)))
        data += piece
    expected = bytearray(data)
    for at, start, size in rng.sample(frames[:-1], 5):
        for position in range(at, at + rng.choice((1, 2, 14))):
            inode(inner)[position] ^= rng.randrange(1, 256)
        expected[start : start + size] = b"\xff" * size
    file = EncryptedFiles(inner, RING).open(PATH)
    assert file.pread(len(data), 0) == expected
    for position in range(0, len(data), 9_000):
        file.pwrite(data[position : position + 9_000], position)
    assert EncryptedFiles(inner, RING).read(PATH) == data


def test_a_block_that_looks_like_many_frames_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker can write any number of headers into a block. Each of them could be tried in vain."""
    inner, files = new()
    file = files.open(PATH, create=True)
    for _ in range(400):
        file.append(b"x" * 50)
    start = FIRST_BLOCK + 92
    fake = bytes.fromhex("7a00 00000000 0000000000000001")
    assert len(inode(inner)) > FIRST_BLOCK + 30_000
    inode(inner)[FIRST_BLOCK + 1] = 20
    for position in range(start, FIRST_BLOCK + BLOCK_BYTES - 200):
        inode(inner)[position] = fake[(position - start) % len(fake)]
    opened = []
    real = FrameKeys.open

    def counted(self: FrameKeys, frame: Any, data: Any, offset: int = 0) -> bytes | None:
        opened.append(frame.end - frame.at)
        return real(self, frame, data, offset)

    monkeypatch.setattr(FrameKeys, "open", counted)
    file = EncryptedFiles(inner, RING).open(PATH)
    found = file.pread(20_000, 0)
    assert 2_000 < found.count(b"x") < 3_000, "the next block is not damaged"
    assert sum(opened) < 16 << 20 and len(opened) < 3_000


def reopened(inner: MemoryFiles) -> File:
    """The file in a process whose generations are counted, which an attacker has to hope for."""
    return EncryptedFiles(
        inner, RING, lambda size: bytes(size) if size == 1 else secrets.token_bytes(size)
    ).open(PATH)


def test_a_header_from_before_a_truncation_gives_its_blocks_no_second_life() -> None:
    """The number of a generation may be used again if the header is rolled back beside newer blocks."""
    inner, files = new()
    file = files.open(PATH, create=True)
    file.append(b"a" * 1000)
    file.append(b"b" * 1000)
    header = bytes(inode(inner)[:HEADER_BYTES])
    file = reopened(inner)
    file.truncate(1000)
    file.append(b"old" * 400)
    older = bytes(inode(inner))
    inode(inner)[:] = header + older[HEADER_BYTES : FIRST_BLOCK + 1042]
    file = reopened(inner)
    assert file.pread(5000, 0) == b"a" * 1000
    for _ in range(3):
        file.append(b"c" * 1000)
    file.truncate(3000)
    file.append(b"new" * 1000)
    data = b"a" * 1000 + b"c" * 2000 + b"new" * 1000
    assert reopened(inner).pread(10_000, 0) == data
    # The frame of the first generation 1, in its old place, which is before the second one begins.
    inode(inner)[FIRST_BLOCK + 1042 : len(older)] = older[FIRST_BLOCK + 1042 :]
    found = reopened(inner).pread(6000, 0)
    assert found == b"\xff" * 3000 + b"new" * 1000
    assert reopened(inner).never_written(0, 6000) == 6000, "it is damage, which a replica repairs"
    reopened(inner).pwrite(data[:3000], 0)
    assert EncryptedFiles(inner, RING).read(PATH) == data


def test_generations_are_not_counted() -> None:
    """A header that is brought back from before a truncation seldom leads to the same generation again."""
    numbers = set()
    for _ in range(40):
        _, files = new()
        file = files.open(PATH, create=True)
        file.append(b"x" * 100)
        file.truncate(10)
        assert isinstance(file, EncryptedFile) and file._content is not None
        numbers.add(file._content.generations.latest)
    assert len(numbers) > 10 and all(number % 2 for number in numbers)
