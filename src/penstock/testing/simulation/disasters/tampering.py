"""Changes to the disk of a stopped broker, as an operator, a backup tool or a failing drive makes them.

Every function leaves the disk in a durable state: a later power loss does not undo the change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from penstock.model.ids import TopicPartition
from penstock.storage.memory import Directory, Inode
from penstock.testing.disk import Dangling, FaultyDisk

__all__ = [
    "Folder",
    "content",
    "copy",
    "cut",
    "dangle",
    "flip",
    "folders",
    "log_files",
    "put",
    "remove",
    "segments",
    "swap",
    "write",
    "zero",
]

_PARTITION: Final = re.compile(r"partition-(\d+)")
_SEGMENT: Final = re.compile(r"\d{20}\.log")
_RECORDS: Final = re.compile(r"\d{20}\.log(\.cut\.\d+)?")


class Folder(NamedTuple):
    """A partition folder on a disk."""

    directory: str
    partition: TopicPartition

    @property
    def path(self) -> str:
        return f"{self.directory}/topics/{self.partition.topic}/partition-{self.partition.partition}"

    @property
    def topic_path(self) -> str:
        return f"{self.directory}/topics/{self.partition.topic}"


def folders(disk: FaultyDisk, directories: list[str], below: str = "") -> list[Folder]:
    """All partition folders in the data directories whose path starts with `below`, ordered by name."""
    found = []
    for directory in directories:
        topics = f"{directory}/topics"
        for topic in disk.listdir(topics) if disk.is_dir(topics) else ():
            for name in disk.listdir(f"{topics}/{topic}") if disk.is_dir(f"{topics}/{topic}") else ():
                match = _PARTITION.fullmatch(name)
                if match is not None and disk.is_dir(f"{topics}/{topic}/{name}"):
                    found.append(Folder(directory, TopicPartition(topic, int(match[1]))))
    return [folder for folder in found if _is_below(folder.path, below)]


def _is_below(path: str, top: str) -> bool:
    return f"{path}/".startswith(f"{top.rstrip('/')}/")


def segments(disk: FaultyDisk, folder: str) -> list[str]:
    """The paths of the segment files in a partition folder, oldest first."""
    return [f"{folder}/{name}" for name in disk.listdir(folder) if _SEGMENT.fullmatch(name)]


def content(disk: FaultyDisk, path: str) -> bytes:
    """The content of a file; also works while the machine is off."""
    return bytes(_inode(disk, path).content)


def copy(disk: FaultyDisk, path: str) -> Directory:
    """A deep copy of a folder, as a backup has it."""
    return _copy(_directory(disk, path))


def put(disk: FaultyDisk, path: str, backup: Directory) -> None:
    """Replace a folder by a copy that was taken earlier."""
    parent, name = _place(disk, path)
    parent[name] = _copy(backup)
    disk.settle()


def remove(disk: FaultyDisk, path: str) -> None:
    """Remove a file or a folder with everything in it."""
    parent, name = _place(disk, path)
    del parent[name]
    disk.settle()


def cut(disk: FaultyDisk, path: str, size: int) -> None:
    """Truncate a file to `size` bytes."""
    del _inode(disk, path).content[size:]
    disk.settle()


def zero(disk: FaultyDisk, path: str, begin: int, end: int) -> None:
    """Overwrite a range of a file with zeros."""
    content = _inode(disk, path).content
    end = min(end, len(content))
    content[begin:end] = bytes(max(0, end - begin))
    disk.settle()


def flip(disk: FaultyDisk, path: str, position: int, bit: int) -> None:
    """Invert one bit of a file."""
    disk.flip_bit(path, position, bit)
    disk.settle()


def swap(disk: FaultyDisk, one: str, other: str) -> None:
    """Exchange two folders."""
    parent, name = _place(disk, one)
    other_parent, other_name = _place(disk, other)
    parent[name], other_parent[other_name] = other_parent[other_name], parent[name]
    disk.settle()


def write(disk: FaultyDisk, path: str, content: bytes) -> None:
    """Write a file, or replace it."""
    parent, name = _place(disk, path)
    inode = parent[name] = Inode(0)
    inode.content += content
    disk.settle()


def dangle(disk: FaultyDisk, path: str) -> None:
    """Make a symbolic link that leads nowhere."""
    parent, name = _place(disk, path)
    parent[name] = Dangling(0)
    disk.settle()


def log_files(directory: Directory, path: str = "") -> Iterator[tuple[str, Inode]]:
    """All segment files below `directory`, and the files that recovery keeps, with their paths."""
    for name, node in directory.items():
        if isinstance(node, Directory):
            yield from log_files(node, f"{path}/{name}")
        elif _RECORDS.fullmatch(name):
            yield f"{path}/{name}", node


def _copy(directory: Directory) -> Directory:
    copied = Directory()
    for name, node in directory.items():
        if isinstance(node, Directory):
            copied[name] = _copy(node)
        else:
            inode = copied[name] = type(node)(node.modified_ms)
            inode.content += node.content
    return copied


def _place(disk: FaultyDisk, path: str) -> tuple[Directory, str]:
    parent, _, name = path.rpartition("/")
    return _directory(disk, parent), name


def _directory(disk: FaultyDisk, path: str) -> Directory:
    node: Inode | Directory = disk.root
    for name in filter(None, path.split("/")):
        assert isinstance(node, Directory)
        node = node[name]
    assert isinstance(node, Directory)
    return node


def _inode(disk: FaultyDisk, path: str) -> Inode:
    parent, name = _place(disk, path)
    node = parent[name]
    assert isinstance(node, Inode)
    return node
