"""Damages files: small functions on the paths of a stopped broker."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from struct import Struct
from typing import Final

from penstock.records.batch import BatchHeader
from penstock.records.record import iter_batches

__all__ = [
    "append_garbage",
    "batches",
    "cut_batches",
    "cut_tail",
    "flip_bit",
    "remove_files",
    "remove_segment",
    "segments",
    "set_base_offset",
    "set_epoch",
    "set_magic",
    "swap",
    "zero_tail",
]

#: where the fields lie in a batch that no checksum covers
_EPOCH_AT: Final = 12
_MAGIC_AT: Final = 16
_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")


def segments(partition: Path) -> list[Path]:
    """Returns a partition's segment files, oldest first; at least one."""
    found = sorted(file for file in partition.glob("*.log") if file.stem.isdigit())
    assert found, f"{partition} has no segment"
    return found


def remove_segment(segment: Path) -> None:
    """Removes a segment with its indexes."""
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        segment.with_suffix(suffix).unlink(missing_ok=True)


def remove_files(folders: list[Path], *patterns: str) -> int:
    """Removes the files of these folders that match; returns how many there were."""
    found = [file for folder in folders for pattern in patterns for file in folder.glob(pattern)]
    for file in found:
        file.unlink()
    return len(found)


def cut_tail(partition: Path, size: int) -> int:
    """Cuts the last `size` bytes off the last segment that has any; returns how many it cut."""
    for segment in reversed(segments(partition)):
        if length := segment.stat().st_size:
            os.truncate(segment, max(0, length - size))
            return min(size, length)
    return 0


def zero_tail(partition: Path, size: int) -> None:
    """Overwrites the last bytes of the newest segment with zeros, as a file system may after power loss."""
    segment = segments(partition)[-1]
    length = segment.stat().st_size
    with segment.open("r+b") as file:
        file.seek(max(0, length - size))
        file.write(bytes(min(size, length)))


def append_garbage(partition: Path, size: int) -> None:
    with segments(partition)[-1].open("ab") as file:
        file.write(b"\xa5" * size)


def flip_bit(file: Path, position: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        byte = opened.read(1)
        assert byte, f"{file} has no byte {position}"
        opened.seek(position)
        opened.write(bytes([byte[0] ^ 0x10]))


def batches(segment: Path) -> list[tuple[int, BatchHeader]]:
    """Returns position and header of each batch of a segment."""
    return list(iter_batches(segment.read_bytes()))


def cut_batches(partition: Path, count: int) -> None:
    """Cuts the last `count` batches off a partition; at least one batch has to be left."""
    for segment in reversed(segments(partition)):
        found = batches(segment)
        if len(found) > count:
            os.truncate(segment, found[-count][0] if count else segment.stat().st_size)
            return
        count -= len(found)
        remove_segment(segment)
    raise AssertionError(f"{partition} has no batch left")


def set_epoch(segment: Path, position: int, epoch: int) -> None:
    """Changes the leader epoch of the batch at `position`; no checksum covers it."""
    _overwrite(segment, position + _EPOCH_AT, _INT.pack(epoch))


def set_base_offset(segment: Path, position: int, offset: int) -> None:
    """Changes the base offset of the batch at `position`; no checksum covers it."""
    _overwrite(segment, position, _LONG.pack(offset))


def set_magic(segment: Path, position: int, magic: int) -> None:
    """Changes the magic byte of the batch at `position`; no checksum covers it."""
    _overwrite(segment, position + _MAGIC_AT, bytes([magic]))


def _overwrite(file: Path, position: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


def swap(one: Path, other: Path) -> None:
    """Exchanges two folders or files."""
    aside = one.with_name(one.name + ".aside")
    shutil.move(one, aside)
    shutil.move(other, one)
    shutil.move(aside, other)
