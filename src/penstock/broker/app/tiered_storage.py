"""Tiered storage of one broker: copies to the archive, reads of it, and the disks that it frees."""

from __future__ import annotations

from penstock.broker.app.archive_access import ArchiveAccess
from penstock.broker.app.archive_reads import ArchivedStates, ArchiveReads
from penstock.broker.app.copies import ArchiveCopies
from penstock.broker.app.local_retention import LocalRetention
from penstock.broker.base.metrics import Metrics
from penstock.broker.node.clock_watch import ClockWatch
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.ports import World

__all__ = ["TieredStorage"]


class TieredStorage:
    """Composes the parts; `open` comes before the logs are opened, `start` before clients are served."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        image: ClusterImage,
        world: World,
        metrics: Metrics,
        clock_watch: ClockWatch,
    ) -> None:
        self.access = ArchiveAccess(config, partitions, world)
        #: for followers that start over
        self.states = ArchivedStates(self.access, world.workers)
        self._copies = ArchiveCopies(config, partitions, image, self.access, world, metrics.copies)
        self._reads = ArchiveReads(config, self.access, world, metrics.remote)
        self.local_retention = LocalRetention(
            partitions,
            self.access,
            world,
            clock_watch,
            metrics.copies,
            lambda: config.log_retention_check_interval_ms / 1000,
        )

    async def open(self) -> None:
        """Raise ArchiveError or OSError if the config of the archive cannot be used; it need not answer."""
        await self.access.open()

    def attach(self, partition: Partition) -> None:
        """A partition was opened: what its local segments do not have is read from the archive."""
        self._reads.attach(partition)

    def start(self) -> None:
        self._copies.rounds.start()
        self.local_retention.rounds.start()

    async def stop(self) -> None:
        await self.local_retention.rounds.stop()
        await self._copies.stop()
        await self._reads.close()
