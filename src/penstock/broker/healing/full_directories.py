"""Data directories that are full, or have failed: who is told, and what becomes of their replicas.

Nobody is to wait for a replica that cannot grow. While its directory is full (`Health.full`), one that leads
is handed over to another in sync, and one that follows leaves the ISR: so the controller decides when a
heartbeat tells it (`without_room`). Here followers stand by: one that went on asking would seem to keep up as
long as nothing is written. When there is room again they follow, and are back in sync by themselves.

A directory that has failed (`Health.offline`) does not come back. Its followers stand by before the
controller hears of it, which takes this broker out of all ISRs that can do without it; whoever asked on would
be back in them at once, on a disk that is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.base.logs import get_logger
from penstock.model.ids import TopicId
from penstock.storage.directory import DataDirectory
from penstock.wire.apis.broker_heartbeat import TopicWithoutRoom

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker

__all__ = ["Room"]

log = get_logger("room")


class Room:
    """Of the data directories of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: those that are known to be full, and told of: an insertion-ordered set
        self._full: dict[DataDirectory, None] = {}
        #: those that have failed, and whose followers stand by
        self._failed: dict[DataDirectory, None] = {}

    async def look(self) -> None:
        """See which directories have become full since the last time, and which have room again."""
        for directory in self._broker.partitions.directories:
            health = directory.health
            if health.full is None or health.offline is not None:
                continue
            if directory not in self._full:
                self._full[directory] = None
                log.error("directory_full", directory=directory.path, error=health.full)
            elif await self._broker.workers.in_thread(directory.has_room):
                self._full.pop(directory, None)
                health.full = None
                log.info("directory_has_room", directory=directory.path)
            else:
                continue
            self._changed(directory)

    def _changed(self, directory: DataDirectory) -> None:
        broker = self._broker
        broker.metrics.full_directories = len(self._full)
        broker.replicas.review(broker.partitions.in_directory(directory))
        if broker.lifecycle is not None:
            broker.lifecycle.wake()

    def failed(self) -> list[DataDirectory]:
        """The directories that have failed, for a heartbeat to name: nothing is followed there any more."""
        partitions = self._broker.partitions
        for directory in partitions.directories:
            if directory.health.offline is not None and directory not in self._failed:
                self._failed[directory] = None
                self._broker.replicas.review(partitions.in_directory(directory))
        return list(self._failed)

    def without_room(self) -> list[TopicWithoutRoom]:
        """The replicas in full directories, as a heartbeat names them, and those in failed ones.

        These have left all ISRs as they failed; should one be back by a fetch that was under way, it is only
        in this way that the controller can tell which.
        """
        topics: dict[TopicId, TopicWithoutRoom] = {}
        for directory in {**self._full, **self._failed}:
            for partition in self._broker.partitions.in_directory(directory):
                topic = topics.setdefault(partition.topic_id, TopicWithoutRoom(topic_id=partition.topic_id))
                topic.partitions.append(partition.index)
        return list(topics.values())
