"""Reading damaged copies of a metadata log: every batch that is intact is found, and no other one."""

from __future__ import annotations

from random import Random

import pytest

from penstock.broker.node.metadata_copies import copies_of, read_copy
from penstock.storage.memory import MemoryFiles
from tests.amounts import amount
from tests.broker.metadata_logs import FOLDER, metadata_log, positions, write

#: the fields of a batch's header: offset and length in bytes
_FIELDS = {
    "base offset": (0, 8),
    "length": (8, 4),
    "leader epoch": (12, 4),
    "magic": (16, 1),
    "checksum": (17, 4),
    "payload": (40, 30),
}


def flipped(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def test_an_intact_log_is_read_as_a_whole() -> None:
    log = metadata_log(12, epochs=3)
    copy = read_copy(write(MemoryFiles(), log), 1, FOLDER)
    assert b"".join(piece.data for piece in copy.pieces.values()) == log
    assert copy.damage == []


@pytest.mark.parametrize("field", _FIELDS)
def test_one_flipped_bit_hides_one_batch(field: str) -> None:
    log = metadata_log(12, epochs=3)
    random, (start, length) = Random(field), _FIELDS[field]
    whole = list(read_copy(write(MemoryFiles(), log), 1, FOLDER).pieces.values())
    for _ in range(amount(60)):
        victim = random.randrange(len(whole))
        position = positions(log)[victim] + start + random.randrange(length)
        damaged = flipped(log, position, random.randrange(8))
        copy = read_copy(write(MemoryFiles(), damaged), 1, FOLDER)
        assert [*copy.pieces.values()] == [piece for piece in whole if piece is not whole[victim]]
        assert len(copy.damage) == 1 and f"offset {whole[victim].offset}" in copy.damage[0]


def test_a_log_in_the_quarantine_is_a_copy_too() -> None:
    files = write(MemoryFiles(), metadata_log(5))
    write(files, metadata_log(3), "/data/quarantine/__cluster_metadata-1/data/partition-0")
    found = copies_of(files, 1, ["/data"])
    assert [len(copy.pieces) for copy in found] == [5, 3]
