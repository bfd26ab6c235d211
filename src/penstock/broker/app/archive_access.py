"""The archive of tiered storage, as all parts of a broker that use it reach it.

Invariant: while a log has records that only the archive has, no new archive is begun, and no other one is
accepted: an address that was emptied or exchanged is an error until an operator has looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.archive.chain import ManifestChain
from penstock.archive.documents import Root
from penstock.archive.errors import ArchiveRefused
from penstock.archive.names import TIER, ArchivedPartition
from penstock.archive.objects import open_archive, read_root
from penstock.broker.app.copy_process import CopyProcess, CopySettings
from penstock.broker.base.encrypted_disks import archive_keys, is_on_disk
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.objectstore.address import StoreAddress, parse_address, parse_options
from penstock.objectstore.encrypted_store import with_keys
from penstock.objectstore.object_store import open_store
from penstock.ports import Files, ObjectStore, World
from penstock.tiering.building import OBJECT_BYTES

__all__ = ["ArchiveAccess", "archive_of", "copy_settings_of", "owner_of"]


def archive_of(config: BrokerConfig) -> ObjectStore:
    """The store at `penstock.remote.log.address`; ArchiveError or OSError if it cannot be used."""
    address, options = _place_of(config)
    return with_keys(open_store(address, options, create=True), archive_keys(config))


def copy_settings_of(config: BrokerConfig, files: Files) -> CopySettings:
    """For the process that copies; ArchiveError or OSError if the config of the archive cannot be used."""
    address, options = _place_of(config)
    return CopySettings(address, options, archive_keys(config), files, OBJECT_BYTES)


def _place_of(config: BrokerConfig) -> tuple[StoreAddress, Mapping[str, str] | None]:
    address, path = config.penstock_remote_log_address, config.penstock_remote_log_store_config
    assert address is not None, "checked with the config"
    options = None if path is None else parse_options(Path(path).read_text(encoding="utf-8"), path)
    return parse_address(address), options


def owner_of(partition: Partition) -> ArchivedPartition:
    return ArchivedPartition(partition.topic, partition.topic_id, partition.index)


class ArchiveAccess:
    """Opens the store, and watches the identity of the archive in it."""

    def __init__(self, config: BrokerConfig, partitions: Partitions, world: World) -> None:
        self._config = config
        self._partitions = partitions
        self._world = world
        self._store = world.archive
        self._id: str | None = None

    async def open(self) -> None:
        """Raise ArchiveError or OSError if the config of the archive cannot be used; it need not answer."""
        if self._store is None:
            self._store = await self._world.workers.in_thread(archive_of, self._config)

    @property
    def store(self) -> ObjectStore:
        assert self._store is not None, "the store is opened before logs are"
        return self._store

    def copy_process(self) -> CopyProcess | None:
        """A process for copies; None for a store or for files that only this process can reach."""
        config, world = self._config, self._world
        address = config.penstock_remote_log_address
        if world.archive is not None or address is None or not is_on_disk(world.files):
            return None
        if parse_address(address).scheme == "memory":
            return None
        return CopyProcess(lambda: world.workers.in_thread(copy_settings_of, config, world.files))

    async def root(self) -> Root:
        """The root of the archive; a new one at an empty address, unless a log depends on the old one.

        ArchiveError or OSError if the archive cannot be used now.
        """
        world = self._world
        if not self._is_needed():
            root = await open_archive(self.store, world.rng, world.clock.now_ms())
        else:
            root = await read_root(self.store)
            if self._id not in (None, root.id):
                raise ArchiveRefused(
                    f"the archive at the address is another one: its id is {root.id}, and was {self._id}; "
                    "records of this broker are only in the old one"
                )
        self._id = root.id
        return root

    def chain(self, archive_id: str, owner: ArchivedPartition) -> ManifestChain:
        """The manifests of leaders of a partition."""
        return ManifestChain(self.store, archive_id, owner, TIER, self._world.rng, self._world.clock)

    def _is_needed(self) -> bool:
        """Returns true if a log of this broker has records that only the archive has."""
        logs = (partition.log for partition in self._partitions)
        return any(log.log_start_offset < log.local_log_start_offset for log in logs)
