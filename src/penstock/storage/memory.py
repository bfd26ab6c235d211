"""A file system in memory, for `--memory` and as the base of the fault-injecting test disk.

It behaves as POSIX does: an open file outlives its name, a rename replaces an existing file, and errors have
the errno of an operating system. Every change of content or names is a method of `MemoryFiles`, so that a
test disk can observe, refuse and undo it.
"""

from __future__ import annotations

import errno
from typing import Final

from penstock.ports import Buffer, Clock, File, Space

__all__ = ["Directory", "Inode", "MemoryFile", "MemoryFiles"]

#: the size that a volume in memory reports
_VOLUME_BYTES: Final = 1 << 40


class Inode:
    """The content of a file, independent of its name."""

    __slots__ = ("content", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.content = bytearray()
        self.modified_ms = modified_ms


class Directory(dict[str, "Inode | Directory"]):
    """Names, each with its file or directory."""

    __slots__ = ()


class MemoryFile:
    """An open file in memory."""

    __slots__ = ("_files", "inode", "path")

    def __init__(self, files: MemoryFiles, path: str, inode: Inode) -> None:
        self._files = files
        self.path = path
        self.inode = inode

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return len(self.inode.content)

    def append(self, data: Buffer) -> None:
        self._files.write(self.inode, data, len(self.inode.content))

    def pread(self, size: int, position: int) -> bytes:
        return self._files.read_content(self.inode, size, position)

    def pread_cached(self, size: int, position: int) -> bytes | None:
        return self.pread(size, position) if self._files.is_cached(self.inode) else None

    def is_cached(self, position: int) -> bool:
        return self._files.is_cached(self.inode)

    def pread_verified(self, size: int, position: int) -> bytes:
        return self._files.read_content(self.inode, size, position)

    def never_written(self, position: int, end: int) -> int | None:
        return None

    def pwrite(self, data: Buffer, position: int) -> None:
        self._files.write(self.inode, data, position)

    def truncate(self, size: int) -> None:
        self._files.cut(self.inode, size)

    def sync(self) -> None:
        self._files.sync(self.inode)

    def sync_volume(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to let go of: the inode goes with its last reference."""


class MemoryFiles:
    """A file system in memory. `write`, `cut` and `sync` are called by its open files.

    Why it has more than 25 methods: it implements `Files`, and tests override single operations of a disk.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock
        self.root = Directory()

    def link(self, directory: Directory, name: str, node: Inode | Directory) -> None:
        """Give `node` a name, and take the name from any node that has it."""
        directory[name] = node

    def unlink(self, directory: Directory, name: str) -> None:
        del directory[name]

    def move(self, source: Directory, old: str, target: Directory, new: str) -> None:
        target[new] = source.pop(old)

    def write(self, inode: Inode, data: Buffer, position: int) -> None:
        content = inode.content
        if position == len(content):
            content += data
        else:
            content.extend(bytes(max(0, position - len(content))))
            content[position : position + len(data)] = data
        inode.modified_ms = self._now_ms()

    def cut(self, inode: Inode, size: int) -> None:
        content = inode.content
        del content[size:]
        content.extend(bytes(size - len(content)))
        inode.modified_ms = self._now_ms()

    def sync(self, inode: Inode) -> None:
        """Memory is as durable as it gets."""

    def read_content(self, inode: Inode, size: int, position: int) -> bytes:
        return bytes(memoryview(inode.content)[position : position + size])

    def is_cached(self, inode: Inode) -> bool:
        """Returns true if a read would not wait; memory never does."""
        return True

    def used(self) -> int:
        """Bytes of all files."""
        return _used(self.root)

    def open(self, path: str, *, create: bool = False) -> File:
        parent, name = self._place(path)
        node = parent.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file", path)
            node = Inode(self._now_ms())
            self.link(parent, name, node)
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return MemoryFile(self, path, node)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def listdir(self, path: str) -> list[str]:
        return sorted(self._directory(path))

    def makedirs(self, path: str) -> None:
        directory = self.root
        for name in _names(path):
            node = directory.get(name)
            if node is None:
                node = Directory()
                self.link(directory, name, node)
            if not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, "A file is in the way", path)
            directory = node

    def size(self, path: str) -> int:
        return len(self._inode(path).content)

    def takes_appends(self, path: str) -> bool:
        return True

    def read(self, path: str) -> bytes:
        inode = self._inode(path)
        return self.read_content(inode, len(inode.content), 0)

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append(data)
            file.sync()
        except OSError:
            self.remove(temporary)
            raise
        self.rename(temporary, path)
        self.sync_dir(path.rpartition("/")[0])

    def rename(self, old: str, new: str) -> None:
        parent, name = self._place(old)
        if name not in parent:
            raise FileNotFoundError(errno.ENOENT, "No such file", old)
        target, new_name = self._place(new)
        if target.get(new_name) and isinstance(target[new_name], Directory):
            raise OSError(errno.ENOTEMPTY, "Directory not empty", new)
        self.move(parent, name, target, new_name)

    def remove(self, path: str) -> None:
        self._inode(path)
        self.unlink(*self._place(path))

    def rmtree(self, path: str) -> None:
        self._directory(path)
        self.unlink(*self._place(path))

    def sync_dir(self, path: str) -> None:
        self._directory(path)

    def modified_ms(self, path: str) -> int:
        return self._inode(path).modified_ms

    def lock(self, path: str) -> File:
        return self.open(path, create=True)

    def space(self, path: str) -> Space:
        self._directory(path)
        return Space(_VOLUME_BYTES, _VOLUME_BYTES - self.used())

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self.root
        for name in _names(path):
            if not isinstance(node, Directory):
                return None
            node = node.get(name)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def _now_ms(self) -> int:
        return self._clock.now_ms() if self._clock else 0


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _used(directory: Directory) -> int:
    return sum(
        _used(node) if isinstance(node, Directory) else len(node.content) for node in directory.values()
    )
