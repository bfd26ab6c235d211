"""A copy of a sealed segment in another format: a crash leaves the old files or the new ones."""

from __future__ import annotations

import secrets
from contextlib import suppress

import pytest

from penstock.encryption import VERSION
from penstock.encryption.directory import file_state
from penstock.encryption.files import EncryptedFiles
from penstock.encryption.version1 import encode_version1
from penstock.storage.health import Health
from penstock.storage.segment_copy import copy_segment, outdated_segments
from penstock.storage.swap import Swap, finish_interrupted_swaps
from tests.encryption.interrupted_disk import Disk, Interrupted
from tests.encryption.keyring import RING

FOLDER = "/data/topics/t/partition-0"
BASE = 7
CONTENT = {
    "00000000000000000000.log": b"older" * 300,
    "00000000000000000007.log": b"records" * 200_000,
    "00000000000000000007.index": b"offsets",
    "00000000000000000007.timeindex": b"times",
    "00000000000000000007.seal": b"seal",
    "00000000000000000007.snapshot": b"producers",
    "00000000000000000020.log": b"active",
    "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAQ\npartition: 0\n",
}


def disk() -> tuple[Disk, EncryptedFiles]:
    """The folder of a partition in version 1 of the encryption."""
    files = Disk()
    files.makedirs(FOLDER)
    for name, data in CONTENT.items():
        files.write_atomic(f"{FOLDER}/{name}", encode_version1(RING, secrets.token_bytes, data))
    return files, EncryptedFiles(files, RING, accepts=frozenset({1, VERSION}))


def upgrade(files: EncryptedFiles) -> None:
    copy_segment(files, FOLDER, BASE, len(CONTENT["00000000000000000007.log"]))
    swap = Swap(files, FOLDER, Health(), [BASE])
    swap.commit()
    swap.move()
    swap.finish()


def versions(files: Disk) -> dict[str, int]:
    return {name: file_state(files, f"{FOLDER}/{name}").version for name in CONTENT}


def test_a_segment_is_copied_with_the_files_beside_it() -> None:
    below, files = disk()
    assert outdated_segments(files, FOLDER, [0, BASE, 20]) == [0, BASE, 20]
    upgrade(files)
    assert {name: files.read(f"{FOLDER}/{name}") for name in CONTENT} == CONTENT
    assert {name for name, version in versions(below).items() if version == VERSION} == {
        f"00000000000000000007.{suffix}" for suffix in ("log", "index", "timeindex", "seal")
    }
    assert outdated_segments(files, FOLDER, [0, BASE, 20]) == [0, 20]
    assert set(below.listdir(FOLDER)) == CONTENT.keys()


def test_a_segment_that_is_too_short_is_not_replaced() -> None:
    _, files = disk()
    with pytest.raises(OSError, match="is shorter than"):
        copy_segment(files, FOLDER, BASE, 1 << 22)


def test_an_interrupted_copy_leaves_the_old_files_or_the_new_ones() -> None:
    number, was_interrupted = 0, True
    found = set()
    while was_interrupted:
        below, files = disk()
        below.changes_left = number
        was_interrupted = True
        with suppress(Interrupted):
            upgrade(files)
            was_interrupted = False
        below.changes_left = None
        reopened = EncryptedFiles(below, RING, accepts=frozenset({1, VERSION}))
        finish_interrupted_swaps(reopened, FOLDER)
        assert {name: reopened.read(f"{FOLDER}/{name}") for name in CONTENT} == CONTENT
        assert set(below.listdir(FOLDER)) == CONTENT.keys()
        found.add(versions(below)["00000000000000000007.log"])
        number += 1
    assert number > 10 and found == {1, VERSION}
