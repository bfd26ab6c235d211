"""Which directories a broker may use with which keys."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from penstock.encryption import IN_PROGRESS, META
from penstock.encryption.directory import (
    NOT_ENCRYPTED,
    DirectoryNotEncrypted,
    check_directories,
    is_encrypted,
    key_names,
)
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.keys import KeyRing, MissingKey, parse_keys
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


def check(files: MemoryFiles, keys: str | None) -> Counter[str]:
    return check_directories(files, ["/data"], None if keys is None else parse_keys(keys))


def test_directories_that_fit_the_keys() -> None:
    assert check(MemoryFiles(), None) == check(MemoryFiles(), OLD) == {}
    assert check(directory(None), None) == {}
    assert check(directory(RING), OLD) == check(directory(RING), f"{NEW},{OLD}") == {"old": 2}
    assert is_encrypted(directory(RING), "/data") and not is_encrypted(directory(None), "/data")


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
    assert key_names(files, "/data") == {"old": 1, "new": 1}
    assert check(files, f"{NEW},{OLD}") == {"old": 1, "new": 1}
    with pytest.raises(MissingKey, match="1 files that are encrypted with the key old"):
        check(files, NEW)


def test_a_file_without_a_header_is_counted() -> None:
    files = directory(RING)
    files.write_atomic("/data/topics/other", b"x")
    assert check(files, OLD) == {"old": 2, NOT_ENCRYPTED: 1}


@pytest.mark.parametrize("keys", [None, OLD])
def test_no_broker_uses_a_directory_that_is_being_converted(keys: str | None) -> None:
    files = directory(RING if keys else None)
    files.write_atomic(f"/data/{IN_PROGRESS}", b"")
    with pytest.raises(PenstockError, match="is being encrypted or decrypted"):
        check(files, keys)
