"""A disk that fails as real ones do: power loss, torn writes, rot, no space, errors.

It is a file system in memory that keeps track of synced data. `crash_at` cuts the power at the n-th change.
`restart` starts the machine again, with the data that a real disk could have:

- Files: the synced bytes, and a prefix of the bytes written since, whose last write may be torn. If the size
  reached the disk and the data did not, there are zeros from the start of a sector on. Later writes may be
  there behind the zeros, because a disk does not write in order.
- Directories: the names at the last sync, and the changes since up to some moment. The moment is the same for
  all directories, as with a journal. A rename happens in both directories or in none.

One random number generator makes all choices, so a seed replays a failure.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from penstock.ports import Buffer, Clock, File, Space
from penstock.storage.memory import Directory, Inode, MemoryFiles

__all__ = ["Dangling", "FaultyDisk", "PowerLoss"]

_Node: TypeAlias = Inode | Directory


#: the unit that a disk writes as a whole or not at all
_SECTOR_BYTES: Final = 512
#: of the attempts that find no descriptor, the share that finds none in a broker's reserve either
_RESERVE_SPENT: Final = 0.02


class PowerLoss(BaseException):
    """The machine is off. Not an Exception: no handler of the code under test may survive it."""


class Dangling(Inode):
    """A symbolic link to nothing: its directory lists it, and opening it fails."""

    __slots__ = ()


class _FileHistory:
    """The durable content of a file, and the writes since its last sync."""

    __slots__ = ("inode", "synced", "writes")

    def __init__(self, inode: Inode) -> None:
        self.inode = inode
        self.synced = b""
        #: (position, bytes); None instead of bytes truncates the file there
        self.writes: list[tuple[int, bytes | None]] = []


class _Change:
    """Names that change together, perhaps in two directories."""

    __slots__ = ("at", "durable")

    def __init__(self, at: int) -> None:
        self.at = at
        self.durable = False


class _DirectoryHistory:
    """The names that were durable at the start, and the changes since."""

    __slots__ = ("changes", "directory", "names")

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self.names: dict[str, _Node] = {}
        #: name -> the file or directory that it names now, None if the name was removed
        self.changes: list[tuple[_Change, dict[str, _Node | None]]] = []


class FaultyDisk(MemoryFiles):
    """A file system in memory with a durable part and a switch.

    Why it has more than 25 methods: it overrides every change of `MemoryFiles`, and each kind of fault has a
    method that tests call.
    """

    def __init__(self, rng: Random, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._rng = rng
        # By id() of a file or directory. A history refers to its object, so that no other one gets the id.
        self._files: dict[int, _FileHistory] = {}
        self._directories: dict[int, _DirectoryHistory] = {}
        #: changes so far, and the one at which the power goes
        self.changes = 0
        self.crash_at: int | None = None
        self._off = False
        #: called once, when the power is cut
        self.on_power_loss: Callable[[], None] | None = None
        #: the errno that syncs and reads fail with
        self.sync_error: int | None = None
        self.read_error: int | None = None
        #: the share of attempts to open a file that find no descriptor
        self.descriptor_shortage = 0.0
        #: how many bytes fit
        self.capacity: int | None = None
        self._cold: set[int] = set()

    # -- disasters

    def restart(self, *, power_loss: bool = True) -> None:
        """Start the machine again; without `power_loss` only the process died, and all written data stays."""
        self._off = False
        self.crash_at = None
        if power_loss:
            self.root = self._survivor(self.root, self._rng.randint(0, self.changes))
            self.settle()

    def settle(self) -> None:
        """Make everything durable as it is, after a change that was made while no broker used the disk."""
        self._files.clear()
        self._directories.clear()
        self._settle(self.root)

    def power_off(self) -> None:
        """Cut the power now: every later use of the disk raises PowerLoss."""
        if not self._off:
            self._off = True
            if self.on_power_loss is not None:
                self.on_power_loss()

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Flip one stored bit, without an error."""
        inode = self._inode(path)
        inode.content[position] ^= 1 << bit
        history = self._file_history(inode)
        if position < len(history.synced):
            history.synced = b"%s%c%s" % (
                history.synced[:position],
                history.synced[position] ^ 1 << bit,
                history.synced[position + 1 :],
            )

    def space(self, path: str) -> Space:
        if self.capacity is None:
            return super().space(path)
        return Space(self.capacity, self.capacity - self.used())

    def evict(self) -> None:
        """Empty the page cache: the next read of any file has to wait for the disk."""
        self._cold = {id(history.inode) for history in self._files.values()}

    def _survivor(self, directory: Directory, journal_end: int) -> Directory:
        """The content of `directory` and its subdirectories after the power loss."""
        history = self._directory_history(directory)
        names: dict[str, _Node | None] = dict(history.names)
        for change, renamed in history.changes:
            if change.durable or change.at <= journal_end:
                names.update(renamed)
        left = Directory()
        for name, node in names.items():
            if isinstance(node, Directory):
                left[name] = self._survivor(node, journal_end)
            elif node is not None:
                left[name] = self._survivor_file(node)
        return left

    def _survivor_file(self, inode: Inode) -> Inode:
        history = self._file_history(inode)
        left = Inode(inode.modified_ms)
        left.content += history.synced
        kept = self._rng.randint(0, len(history.writes))
        for position, data in history.writes[:kept]:
            _write(left.content, position, data)
        if kept < len(history.writes):
            self._tear(left.content, history.writes[kept:])
        return left

    def _tear(self, content: bytearray, writes: Sequence[tuple[int, bytes | None]]) -> None:
        """Half a write: a part of the data, or none and zeros in its place, and then the rest of `writes`."""
        position, data = writes[0]
        if data is None:
            return
        written = self._rng.randint(0, len(data))
        if self._rng.choice((False, True)):
            written = max(0, (position + written) // _SECTOR_BYTES * _SECTOR_BYTES - position)
            _write(content, position, data[:written] + bytes(len(data) - written))
            self._write_behind(content, writes[1:])
        else:
            _write(content, position, data[:written])

    def _write_behind(self, content: bytearray, writes: Sequence[tuple[int, bytes | None]]) -> None:
        """Write the data behind a hole, from the next sector on: the sector of the hole's end is torn."""
        begin = len(content) + -len(content) % _SECTOR_BYTES
        for position, data in writes:
            if data is None or position + len(data) <= begin:
                continue
            _write(content, max(position, begin), data[max(0, begin - position) :])

    def _settle(self, directory: Directory) -> None:
        """Take the current content as durable: after a start, memory and disk agree."""
        history = self._directories[id(directory)] = _DirectoryHistory(directory)
        history.names = dict(directory)
        for node in directory.values():
            if isinstance(node, Directory):
                self._settle(node)
            else:
                file = self._files[id(node)] = _FileHistory(node)
                file.synced = bytes(node.content)

    # -- changes of content and names

    def write(self, inode: Inode, data: Buffer, position: int) -> None:
        grown = max(0, position + len(data) - len(inode.content))
        if self.capacity is not None and self.used() + grown > self.capacity:
            self._check_power()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._file_history(inode).writes.append((position, bytes(data)))
        super().write(inode, data, position)
        self._changed()

    def cut(self, inode: Inode, size: int) -> None:
        self._file_history(inode).writes.append((size, None))
        super().cut(inode, size)
        self._changed()

    def sync(self, inode: Inode) -> None:
        self._changed()
        self._fail(self.sync_error)
        history = self._file_history(inode)
        history.synced = bytes(inode.content)
        history.writes.clear()

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self._changed()
        self._fail(self.sync_error)
        for change, _ in self._directory_history(directory).changes:
            change.durable = True

    def link(self, directory: Directory, name: str, node: _Node) -> None:
        self._directory_history(directory).changes.append((_Change(self.changes), {name: node}))
        super().link(directory, name, node)
        self._changed()

    def unlink(self, directory: Directory, name: str) -> None:
        self._directory_history(directory).changes.append((_Change(self.changes), {name: None}))
        super().unlink(directory, name)
        self._changed()

    def move(self, source: Directory, old: str, target: Directory, new: str) -> None:
        change = _Change(self.changes)
        self._directory_history(source).changes.append((change, {old: None}))
        self._directory_history(target).changes.append((change, {new: source[old]}))
        super().move(source, old, target, new)
        self._changed()

    def read_content(self, inode: Inode, size: int, position: int) -> bytes:
        self._check_power()
        self._fail(self.read_error)
        self._cold.discard(id(inode))
        return super().read_content(inode, size, position)

    def is_cached(self, inode: Inode) -> bool:
        return id(inode) not in self._cold

    def _changed(self) -> None:
        self._check_power()
        self.changes += 1
        if self.changes == self.crash_at:
            self.power_off()
            raise PowerLoss

    def _check_power(self) -> None:
        if self._off:
            raise PowerLoss

    def _fail(self, code: int | None) -> None:
        if code is not None:
            raise OSError(code, os.strerror(code))

    def _find(self, path: str) -> Inode | Directory | None:
        node = super()._find(path)
        return None if isinstance(node, Dangling) else node

    def open(self, path: str, *, create: bool = False) -> File:
        parent, name = self._place(path)
        if isinstance(parent.get(name), Dangling):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self.descriptor_shortage:
            # Brokers keep descriptors in reserve for files that are made; few attempts find none left.
            share = self.descriptor_shortage * (_RESERVE_SPENT if create else 1.0)
            self._fail(errno.EMFILE if self._rng.random() < share else None)
        return super().open(path, create=create)

    def _file_history(self, inode: Inode) -> _FileHistory:
        history = self._files.get(id(inode))
        if history is None:
            history = self._files[id(inode)] = _FileHistory(inode)
        return history

    def _directory_history(self, directory: Directory) -> _DirectoryHistory:
        history = self._directories.get(id(directory))
        if history is None:
            history = self._directories[id(directory)] = _DirectoryHistory(directory)
        return history


def _write(content: bytearray, position: int, data: bytes | None) -> None:
    """Do a write again; the file may be shorter or longer than it was then."""
    content.extend(bytes(max(0, position - len(content))))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data
