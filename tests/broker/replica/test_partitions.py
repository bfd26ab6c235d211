"""What partitions cost the event loop when they come and go: no disk work, however many they are."""

from __future__ import annotations

import errno
import os
import threading
from random import Random

import pytest

from penstock.broker.base.system_ports import SystemClock
from penstock.storage.memory import Directory, Inode
from penstock.testing.disk import FaultyDisk
from tests.broker.disks import Disk, on_disk
from tests.broker.raw import RawClient
from tests.broker.requests import append, create_topic, delete_topic, read_all

LOOP = "broker-on-disk"


class Watched(FaultyDisk):
    """Notes which thread changes names and syncs."""

    def __init__(self) -> None:
        super().__init__(Random(0), SystemClock())
        self.by: list[tuple[str, str]] = []

    def _note(self, what: str) -> None:
        self.by.append((threading.current_thread().name, what))

    def link(self, directory: Directory, name: str, node: Inode | Directory) -> None:
        self._note(f"link {name}")
        super().link(directory, name, node)

    def unlink(self, directory: Directory, name: str) -> None:
        self._note(f"unlink {name}")
        super().unlink(directory, name)

    def move(self, source: Directory, old: str, target: Directory, new: str) -> None:
        self._note(f"move {old}")
        super().move(source, old, target, new)

    def sync(self, inode: Inode) -> None:
        self._note("sync")
        super().sync(inode)

    def sync_dir(self, path: str) -> None:
        self._note(f"sync_dir {path}")
        super().sync_dir(path)

    def listdir(self, path: str) -> list[str]:
        self._note(f"listdir {path}")
        return super().listdir(path)

    def read(self, path: str) -> bytes:
        self._note(f"read {path}")
        return super().read(path)


@pytest.mark.parametrize("partitions", [1, 300])
def test_partitions_come_and_go_without_disk_work_on_the_loop(partitions: int) -> None:
    disk = Watched()
    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        disk.by.clear()
        for _ in range(2):
            topic = create_topic(client, "t", partitions=partitions)
            append(client, topic, b"x", partition=partitions - 1)
            delete_topic(client, topic)
        again = create_topic(client, "t", partitions=partitions)
        assert read_all(client, again, partition=partitions - 1) == []
        assert len(disk.by) > partitions
        assert [what for thread, what in disk.by if thread == LOOP] == []


def test_a_stop_syncs_many_logs_at_once() -> None:
    """Three threads sync: none of them could go on alone."""

    class Together(Disk):
        stopping = False

        def __init__(self) -> None:
            super().__init__()
            self.barrier = threading.Barrier(3, timeout=60)
            self.met: set[str] = set()

        def sync(self, inode: Inode) -> None:
            name = threading.current_thread().name
            # The time of the broker is saved before, by one thread alone.
            is_clock = inode.content.startswith(b"1\n1\n")
            if self.stopping and not is_clock and len(self.met) < 3 and name not in self.met:
                self.met.add(name)
                self.barrier.wait()
            super().sync(inode)

    disk = Together()
    with on_disk(disk, penstock_flush="os", background_threads="3") as running:
        with RawClient(running.bootstrap) as client:
            topic = create_topic(client, partitions=6)
            for partition in range(6):
                append(client, topic, b"x", partition=partition)
        disk.stopping = True
    assert len(disk.met) == 3
    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        assert [read_all(client, topic, partition=p)[0].value for p in range(6)] == [b"x"] * 6


class Stuck(Disk):
    """Moves no name elsewhere while it is `stuck`."""

    stuck = False

    def move(self, source: Directory, old: str, target: Directory, new: str) -> None:
        if self.stuck:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        super().move(source, old, target, new)


def test_a_topic_that_cannot_be_set_aside_does_not_return() -> None:
    disk = Stuck()
    with on_disk(disk) as running, RawClient(running.bootstrap) as client:
        topic = create_topic(client, "t")
        append(client, topic, b"old")
        disk.stuck = True
        delete_topic(client, topic)
        disk.stuck = False
        again = create_topic(client, "t")
        append(client, again, b"new")
        assert [r.value for r in read_all(client, again)] == [b"new"]
