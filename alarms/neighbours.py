"""What alerts are about beside the brokers: the source of a link, an archive of tiered storage, and a backup.

The source is a broker of its own, which a link of the cluster mirrors and the backup copies.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lab.penstock import penstock
from lab.server import HOST, Server, free_port
from penstock import Admin

__all__ = ["MIRRORED", "RECREATED", "Neighbours"]

#: topics of the source: one for records that go before they are mirrored, and one that is created again
MIRRORED, RECREATED = "mirrored", "recreated"
_LINK: Final = "west"
_EVERY: Final = "5s"
_TIMEOUT_S: Final = 30.0


class Neighbours:
    """They run from `start` to `stop`. Their folders are in `home`, which has to be there."""

    def __init__(self, home: Path) -> None:
        #: the address of the archive of tiered storage
        self.archive: Final = home / "archive"
        self._backup: Final = home / "backup"
        self._earlier: Final = home / "archive-earlier"
        (home / "source").mkdir()
        self.source: Final = penstock(home / "source", {"penstock.flush": "os"})
        port = free_port()
        command = [sys.executable, "-m", "penstock", "backup", "run", "--to", str(self._backup)]
        command += ["--every", _EVERY, "--verify-every", _EVERY, "--metrics", str(port)]
        command += ["--bootstrap", self.source.bootstrap]
        #: its address is that of its metrics
        self.backup: Final = Server("backup", port, command, home / "backup.log")
        self._bootstrap = ""

    @property
    def backup_target(self) -> str:
        """The address of the backup's metrics."""
        return f"{HOST}:{self.backup.port}"

    def start(self, bootstrap: str) -> None:
        """Start the source and the backup, and link the cluster to the source."""
        self._bootstrap = bootstrap
        self.source.start()
        for topic in (MIRRORED, RECREATED):
            self._create(topic)
            self.produce(topic, 10)
        topics = f"{MIRRORED},{RECREATED}"
        self._administer(lambda admin: admin.links.create(_LINK, self.source.bootstrap, topics=topics))
        self.backup.launch()

    def stop(self) -> None:
        for server in (self.backup, self.source):
            if server.runs():
                server.kill()

    # -- the link

    def produce(self, topic: str, messages: int) -> None:
        """Write messages at the source."""
        producer = Producer({"bootstrap.servers": self.source.bootstrap, "log_level": 0})
        for _ in range(messages):
            producer.produce(topic, b"x" * 500)
        assert producer.flush(_TIMEOUT_S) == 0

    def create_again(self) -> None:
        """Give the source another topic of the same name, with records."""
        admin = self._at_source()
        for future in admin.delete_topics([RECREATED]).values():
            future.result(_TIMEOUT_S)
        self._create(RECREATED)
        self.produce(RECREATED, 10)

    def fail_over(self) -> None:
        """Give up the mirror of the topic that was created again."""
        self._administer(lambda admin: admin.links.failover(_LINK, [RECREATED]))

    def lose_unmirrored(self) -> None:
        """Write records at the source while the link is paused, and delete them before it goes on."""
        self._administer(lambda admin: admin.links.pause(_LINK))
        self.produce(MIRRORED, 100)
        admin = self._at_source()
        # -1 is the end of the partition.
        for future in admin.delete_records([TopicPartition(MIRRORED, 0, -1)]).values():
            future.result(_TIMEOUT_S)
        self.produce(MIRRORED, 10)
        self._administer(lambda admin: admin.links.resume(_LINK))

    def _create(self, topic: str) -> None:
        admin = self._at_source()
        for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            future.result(_TIMEOUT_S)

    def _at_source(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.source.bootstrap, "log_level": 0})

    def _administer(self, request: Callable[[Admin], Awaitable[object]]) -> None:
        async def run() -> None:
            async with Admin(self._bootstrap) as admin:
                await request(admin)

        asyncio.run(asyncio.wait_for(run(), _TIMEOUT_S))

    # -- the archive

    def block_archive(self) -> None:
        _block(self.archive)

    def unblock_archive(self) -> None:
        _unblock(self.archive)

    def remember_archive(self) -> None:
        """Copy the archive as it is."""
        shutil.rmtree(self._earlier, ignore_errors=True)
        shutil.copytree(self.archive, self._earlier)

    def roll_archive_back(self) -> None:
        """Have the archive as it was when it was remembered."""
        self.archive.rename(_aside(self.archive))
        self._earlier.rename(self.archive)

    def bring_archive_back(self) -> None:
        shutil.rmtree(self.archive)
        _aside(self.archive).rename(self.archive)

    # -- the backup

    def block_backup(self) -> None:
        _block(self._backup)

    def unblock_backup(self) -> None:
        _unblock(self._backup)

    def damage_backup(self) -> None:
        """Flip a byte of the newest object, which the next cuts need; again: as it was."""
        found = max(self._backup.glob(f"topics/{MIRRORED}/*/0/*.segment"))
        with found.open("r+b") as file:
            file.seek(found.stat().st_size // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 0xFF]))


def _aside(folder: Path) -> Path:
    return folder.with_name(folder.name + "-aside")


def _block(folder: Path) -> None:
    """Put a file in place of the folder: nothing in it can be read or written, by root either."""
    folder.rename(_aside(folder))
    folder.touch()


def _unblock(folder: Path) -> None:
    folder.unlink()
    _aside(folder).rename(folder)
