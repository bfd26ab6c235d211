"""The data directories of a broker: the present and the missing ones, and their last shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.stored_partitions import log_damaged
from penstock.model.config import BrokerConfig
from penstock.model.errors import StorageError
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, format_topic_id
from penstock.ports import Clock, Files, Rng, Workers
from penstock.storage.directory import MANY_FILES, DataDirectory, StoredPartition
from penstock.storage.flush import FlushPlan
from penstock.storage.folders import PartitionFolders
from penstock.storage.manifest import NO_REGISTRATION, Registration
from penstock.storage.ownership import DirectoryRefused, introduce, survey
from penstock.storage.quarantine import Quarantine

__all__ = ["DataDirectories", "check_metadata_folder", "close_cleanly", "open_directories"]

log = get_logger("partitions")


@dataclass(slots=True)
class DataDirectories:
    """The data directories of one broker."""

    #: those that are open
    opened: list[DataDirectory] = field(default_factory=list)
    #: paths at which a data directory should be and is not
    missing: list[str] = field(default_factory=list)
    #: ids of data directories that are gone, and with them their replicas
    lost: frozenset[str] = frozenset()

    @property
    def previous_registration(self) -> Registration:
        """The registration that ended with the last clean shutdown; NO_REGISTRATION if there was none.

        All data directories have to name the same one. One that was rolled back as a whole does not.
        """
        if self.lost or not all(directory.shutdown.clean for directory in self.opened):
            return NO_REGISTRATION
        found = {directory.path: directory.shutdown.registration for directory in self.opened}
        if len(set(found.values())) > 1:
            log.error("manifests_disagree", broker_epochs={path: each.epoch for path, each in found.items()})
            return NO_REGISTRATION
        return self.opened[0].shutdown.registration

    def metadata_home(self) -> DataDirectory:
        """The directory with the metadata log, which is made if this broker is new."""
        for directory in self.opened:
            if directory.holds(METADATA_TOPIC, 0):
                own = StoredPartition(METADATA_TOPIC, 0, METADATA_TOPIC_ID)
                # Release 0.1.0 wrote no identity. A disk that takes nothing now may do so at the next start.
                with suppress(OSError):
                    if directory.folders.identity(own) is None:
                        directory.folders.identify(*own)
                    directory.folders.keep_topic(METADATA_TOPIC, METADATA_TOPIC_ID)
                return directory
        if self.lost or any(directory.partitions() for directory in self.opened):
            raise DirectoryRefused(
                "none of the data directories has this broker's metadata: mount the one that has, or add it "
                "to log.dirs"
            )
        first = self.opened[0]
        first.create_partitions([StoredPartition(METADATA_TOPIC, 0, METADATA_TOPIC_ID)])
        return first


def check_metadata_folder(files: Files, data_dirs: Iterable[str]) -> None:
    """Raise DirectoryRefused if another partition's folder is in the place of the metadata log."""
    own = StoredPartition(METADATA_TOPIC, 0, METADATA_TOPIC_ID)
    for data_dir in data_dirs:
        folders = PartitionFolders(files, data_dir, Quarantine(files, data_dir), None)
        identity = folders.identity(own)
        if identity is not None and identity != (METADATA_TOPIC_ID, 0):
            path, topic_id = folders.partition_path(METADATA_TOPIC, 0), format_topic_id(identity.topic_id)
            raise DirectoryRefused(
                f"{path} is the folder of partition {identity.partition} of the topic with id {topic_id}: "
                "move the folder with the metadata log back to this path"
            )


def open_directories(
    config: BrokerConfig,
    files: Files,
    clock: Clock,
    rng: Rng,
    cluster_id: str | None,
    into: DataDirectories,
) -> None:
    """Open the configured data directories; `into` has those that were opened, even if a later one fails.

    New ones become the cluster's with `cluster_id`, or that of a new cluster.
    """
    siblings = survey(files, config.data_dirs)
    into.lost = siblings.lost
    cluster_id = siblings.cluster_id or cluster_id
    for path in config.data_dirs:
        if siblings.lost and path in siblings.unowned:
            # Most likely a disk that is not mounted: nothing may be written in its place.
            log.error("data_directory_missing", directory=path, directory_ids=sorted(siblings.lost))
            into.missing.append(path)
            continue
        directory = DataDirectory.open(
            files, path, cluster_id=cluster_id, node_id=config.node_id, rng=rng, clock=clock
        )
        into.opened.append(directory)
        cluster_id = directory.cluster_id
        if directory.shutdown.problem is not None:
            log.warning("manifest_refused", directory=path, reason=directory.shutdown.problem)
        log_damaged(directory.damaged_checkpoints)
    introduce(files, [directory.path for directory in into.opened])


async def close_cleanly(
    workers: Workers, directory: DataDirectory, registration: Registration, threads: int
) -> None:
    """Sync the logs of a directory and write its manifest; without the manifest if the disk fails.

    Nothing may be appended from now on.
    """
    try:
        sealed = await workers.in_thread(directory.seal)
        await _sync(workers, directory, [plan for _, plan in sealed], threads)
        for opened, plan in sealed:
            opened.flushed(plan)
        await workers.in_thread(directory.close, True, registration)
    except StorageError as e:
        log.error("unclean_shutdown", directory=directory.path, error=str(e))
        directory.close(clean=False)


async def _sync(workers: Workers, directory: DataDirectory, plans: Sequence[FlushPlan], threads: int) -> None:
    """Carry out plans in several threads: a disk syncs ten files in hardly more time than one."""
    if len(plans) >= MANY_FILES:
        threads = 1
    parts = [plans[first::threads] for first in range(min(threads, len(plans)))]
    done = [workers.in_thread(directory.sync, part) for part in parts]
    for outcome in await asyncio.gather(*done, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
