"""The second stage of a broker: its data directories, open, and the metadata log in one of them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker.base.metrics import Metrics
from penstock.broker.node.cluster_node import new_cluster_id
from penstock.broker.replica.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.model.ids import METADATA_TOPIC
from penstock.ports import World
from penstock.storage.directory import DataDirectory, DirectoryRefused
from penstock.storage.log import Log

__all__ = ["Storage", "open_storage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The partitions that this broker hosts, and the metadata log."""

    partitions: Partitions
    #: counts what all later stages do
    metrics: Metrics
    metadata_log: Log
    #: the data directory of the metadata log, which has the id of the cluster
    home: DataDirectory
    #: true if there were no data
    is_new: bool


async def open_storage(config: BrokerConfig, world: World, partitions: Partitions) -> Storage:
    """Open the data directories and the metadata log; DirectoryRefused if they belong to another cluster."""
    metadata_log = partitions.open(new_cluster_id(config))
    # Records that a killed process has written but not synced count as acknowledged from here on.
    plan = metadata_log.flush_plan()
    await world.workers.in_thread(plan.sync)
    metadata_log.flushed(plan)
    home = next(d for d in partitions.directories if metadata_log.path.startswith(f"{d.path}/"))
    if config.penstock_cluster_id not in (None, home.cluster_id):
        raise DirectoryRefused(
            f"{home.path} belongs to the cluster {home.cluster_id}, but penstock.cluster.id is "
            f"{config.penstock_cluster_id}: use another path, or leave it out"
        )
    return Storage(
        partitions=partitions,
        metrics=Metrics(partitions.traffic),
        metadata_log=metadata_log,
        home=home,
        is_new=metadata_log.end_offset == 0 and not any(map(_has_data, partitions.directories)),
    )


def _has_data(directory: DataDirectory) -> bool:
    return any(stored.topic != METADATA_TOPIC for stored in directory.partitions())
