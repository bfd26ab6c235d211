"""Which directories a broker may use with which keys."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from penstock.broker.base.system_ports import OsFiles
from penstock.encryption import IN_PROGRESS, MAGIC, META, PLAIN, VERSION
from penstock.encryption.directory import (
    DirectoryNotEncrypted,
    check_directories,
    directory_version,
    file_states,
)
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.head import COPIES_AT, NewerVersion
from penstock.encryption.keys import KeyRing, MissingKey, parse_keys
from penstock.encryption.version1 import encode_version1
from penstock.model.errors import PenstockError
from penstock.storage.memory import MemoryFiles
from tests.encryption.keyring import NEW, OLD, OTHER, RING


def directory(ring: KeyRing | None) -> MemoryFiles:
    """A data directory at /data with two files."""
    files = MemoryFiles()
    files.makedirs("/data/topics")
    files.lock("/data/lock")
    target = files if ring is None else EncryptedFiles(files, ring)
    target.write_atomic(f"/data/{META}", b"{}")
    target.write_atomic("/data/topics/log", b"records")
    return files


def check(files: MemoryFiles, keys: str | None) -> Counter[tuple[int, str]]:
    return check_directories(files, ["/data"], None if keys is None else parse_keys(keys))


def test_directories_that_fit_the_keys() -> None:
    assert check(MemoryFiles(), None) == check(MemoryFiles(), OLD) == {}
    assert check(directory(None), None) == {}
    assert check(directory(RING), OLD) == check(directory(RING), f"{NEW},{OLD}") == {(VERSION, "old"): 2}
    assert directory_version(directory(RING), "/data") == VERSION
    assert directory_version(directory(None), "/data") == directory_version(MemoryFiles(), "/data") == PLAIN


@pytest.mark.parametrize(
    ("ring", "keys", "kind", "reason"),
    [
        (RING, None, MissingKey, "/data is encrypted with the key old: set penstock.encryption.keys"),
        (RING, NEW, MissingKey, "/data has 2 files that are encrypted with the key old, which"),
        (RING, OTHER, MissingKey, "/data is encrypted with another key of the name old"),
        (None, OLD, DirectoryNotEncrypted, "/data is not encrypted, but penstock.encryption.keys is set"),
    ],
)
def test_a_lost_key_is_a_clear_error(
    ring: KeyRing | None, keys: str | None, kind: type[PenstockError], reason: str
) -> None:
    with pytest.raises(kind, match=re.escape(reason)):
        check(directory(ring), keys)


def test_a_key_that_only_older_files_need_is_needed() -> None:
    files = directory(RING)
    EncryptedFiles(files, parse_keys(NEW)).write_atomic(f"/data/{META}", b"{}")
    assert file_states(files, "/data") == {(VERSION, "old"): 1, (VERSION, "new"): 1}
    assert check(files, f"{NEW},{OLD}") == {(VERSION, "old"): 1, (VERSION, "new"): 1}
    with pytest.raises(MissingKey, match="1 files that are encrypted with the key old"):
        check(files, NEW)


def test_another_key_of_the_name_that_only_older_files_need_is_refused() -> None:
    """Without this the broker would take its segments for empty files, and set them aside."""
    files = directory(RING)
    files.makedirs("/data/topics/more")
    EncryptedFiles(files, RING).write_atomic("/data/topics/more/log", b"records")
    EncryptedFiles(files, parse_keys(NEW)).write_atomic(f"/data/{META}", b"{}")
    with pytest.raises(MissingKey, match="2 files that are encrypted with another key of the name old"):
        check(files, f"{NEW},{OTHER}")


def test_a_damaged_file_is_not_taken_for_one_of_another_key() -> None:
    files = directory(RING)
    file = files.open("/data/topics/log")
    for copy in COPIES_AT:
        file.pwrite(b"\xff" * 16, copy + 60)
    assert check(files, OLD) == {(VERSION, "old"): 2}


@pytest.mark.parametrize("at", [0, 60, 210])
def test_an_owner_with_two_damaged_headers_is_not_taken_for_plain_text_or_other_keys(at: int) -> None:
    """The advice was to encrypt the directory, to leave the keys out, or to bring other ones."""
    files = directory(RING)
    file = files.open(f"/data/{META}")
    for copy in COPIES_AT:
        file.pwrite(b"\xff" * 4, copy + at)
    with pytest.raises(PenstockError, match=r"/data/meta.json is damaged: no copy of its header"):
        check(files, OLD)


def test_a_missing_key_of_the_owner_is_not_taken_for_damage() -> None:
    files = directory(RING)
    EncryptedFiles(files, parse_keys(NEW)).write_atomic(f"/data/{META}", b"{}")
    with pytest.raises(MissingKey, match="encrypted with the key new"):
        check(files, OLD)


def test_a_flipped_bit_is_not_a_later_version() -> None:
    files = directory(RING)
    for copy in COPIES_AT:
        file = files.open("/data/topics/log")
        page = file.pread(copy + 8, 0)
        file.pwrite(b"\x03", copy + 7)
        assert check(files, OLD) == {(VERSION, "old"): 2}
        assert EncryptedFiles(files, RING).read("/data/topics/log") == b"records"
        file.pwrite(page[copy:], copy)


def test_a_file_without_a_header_is_counted() -> None:
    files = directory(RING)
    files.write_atomic("/data/topics/other", b"x")
    assert check(files, OLD) == {(VERSION, "old"): 2, (PLAIN, ""): 1}


def test_files_of_version_1_are_counted() -> None:
    files = directory(RING)
    files.write_atomic("/data/topics/older", encode_version1(RING, bytes, b"x"))
    assert check(files, OLD) == {(VERSION, "old"): 2, (1, "old"): 1}


@pytest.mark.parametrize("keys", [None, OLD])
def test_a_directory_of_a_later_version_is_refused_with_one_line(keys: str | None) -> None:
    files = directory(RING)
    files.write_atomic(f"/data/{META}", (MAGIC + b"\x03").ljust(5000, b"x"))
    with pytest.raises(NewerVersion) as refused:
        check(files, keys)
    assert str(refused.value) == (
        f"/data/{META} has version 3 of the encryption, this Penstock knows 2: upgrade it"
    )


@pytest.mark.parametrize("keys", [None, OLD])
def test_a_directory_that_has_lost_its_owner_is_refused(keys: str | None) -> None:
    """The places of its files have the ids that are in meta.json."""
    files = directory(RING)
    files.remove(f"/data/{META}")
    with pytest.raises(PenstockError, match=r"/data has encrypted files, but no meta\.json: restore it"):
        check(files, keys)


@pytest.mark.parametrize("version", [1, VERSION])
def test_files_in_plain_text_do_not_hide_that_others_are_encrypted(version: int) -> None:
    files = directory(RING)
    files.remove(f"/data/{META}")
    files.write_atomic("/data/topics/a", b"plain text")
    files.write_atomic("/data/a", b"plain text")
    if version == 1:
        files.write_atomic("/data/topics/log", encode_version1(RING, bytes, b"x"))
    with pytest.raises(PenstockError, match=r"/data has encrypted files, but no meta\.json"):
        check(files, OLD)


@pytest.mark.parametrize("keys", [None, OLD])
def test_no_broker_uses_a_directory_that_is_being_converted(keys: str | None) -> None:
    files = directory(RING if keys else None)
    files.write_atomic(f"/data/{IN_PROGRESS}", b"")
    with pytest.raises(PenstockError, match="is being encrypted or decrypted"):
        check(files, keys)


def test_a_link_to_nothing_is_no_reason_not_to_start(tmp_path: Path) -> None:
    """As of a partition on a volume that is not mounted: storage decides about it."""
    disk, data = OsFiles(), str(tmp_path)
    EncryptedFiles(disk, RING).write_atomic(f"{data}/{META}", b"{}")
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "t").symlink_to(tmp_path / "missing")
    assert check_directories(disk, [data], RING) == {(VERSION, "old"): 1}
