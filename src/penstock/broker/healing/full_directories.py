"""Watches for data directories that are full or have failed, and takes their replicas out of service.

A replica in a full directory (`Health.full`) cannot grow. The heartbeat reports it (`without_room`); the
controller then moves leadership to another in-sync replica and removes followers from the ISR. A follower
here stops fetching, because fetching alone would make it look in sync as long as nothing is written. When the
directory has space again, the follower fetches and rejoins the ISR.

A directory that has failed (`Health.offline`) does not come back. Its followers stop fetching before the
controller removes this broker from the ISRs, because a fetch after that would bring them back at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import Metrics
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.ports import Workers
from penstock.storage.directory import DataDirectory
from penstock.wire.apis.broker_heartbeat import FailedTopic, TopicWithoutRoom

__all__ = ["FullDirectories"]

log = get_logger("room")


class FullDirectories:
    """Watches the data directories of one broker for space and failures."""

    def __init__(
        self,
        partitions: Partitions,
        workers: Workers,
        metrics: Metrics,
        review: Callable[[Iterable[Partition]], None],
        on_change: Callable[[], None],
    ) -> None:
        """`review` assigns replicas their roles again; `on_change` sends a heartbeat at once."""
        self._partitions = partitions
        self._workers = workers
        self._metrics = metrics
        self._review = review
        self._on_change = on_change
        #: directories that are reported as full: an insertion-ordered set
        self._full: dict[DataDirectory, None] = {}
        #: directories that have failed, and whose followers have stopped fetching
        self._failed: dict[DataDirectory, None] = {}

    async def look(self) -> None:
        """Detect directories that have become full since the last call, and those that have space again."""
        for directory in self._partitions.directories:
            health = directory.health
            if health.full is None or health.offline is not None:
                continue
            if directory not in self._full:
                self._full[directory] = None
                log.error("directory_full", directory=directory.path, error=health.full)
            elif await self._workers.in_thread(directory.has_room):
                self._full.pop(directory, None)
                health.full = None
                log.info("directory_has_room", directory=directory.path)
            else:
                continue
            self._changed(directory)

    def _changed(self, directory: DataDirectory) -> None:
        self._metrics.full_directories = len(self._full)
        self._review(self._partitions.in_directory(directory))
        self._on_change()

    def failed(self) -> list[DataDirectory]:
        """The failed directories, for the heartbeat. Stops the followers in newly failed directories."""
        for directory in self._partitions.directories:
            if directory.health.offline is not None and directory not in self._failed:
                self._failed[directory] = None
                self._review(self._partitions.in_directory(directory))
        return list(self._failed)

    def without_room(self) -> list[TopicWithoutRoom]:
        """The replicas in full and failed directories and between two directories, for the heartbeat.

        The controller removes replicas in a failed directory from the ISR at the failure. A fetch that was in
        flight may bring such a replica back. The heartbeat then names the replica, and the controller removes
        it again.
        """
        indexes = self._replicas_in({**self._full, **self._failed})
        for topic_id, index in self._partitions.interrupted:
            if self._partitions.find(topic_id, index) is ErrorCode.KAFKA_STORAGE_ERROR:
                indexes.setdefault(topic_id, []).append(index)
        return [TopicWithoutRoom(topic_id=each, partitions=found) for each, found in indexes.items()]

    def failed_replicas(self) -> list[FailedTopic]:
        """The replicas in failed directories, for the heartbeat: self-healing rebuilds them elsewhere."""
        indexes = self._replicas_in(self._failed)
        return [FailedTopic(topic_id=each, partitions=found) for each, found in indexes.items()]

    def _replicas_in(self, directories: Iterable[DataDirectory]) -> dict[TopicId, list[int]]:
        indexes: dict[TopicId, list[int]] = {}
        for directory in directories:
            for partition in self._partitions.in_directory(directory):
                indexes.setdefault(partition.topic_id, []).append(partition.index)
        return indexes
