"""Restores a cut into the data directory of a new broker.

A broker runs in this process, on a loopback port and in a folder beside the final one: it creates the topics,
writes the batches with the offsets that they had, and commits the offsets of groups. Then it is stopped, and
the folder gets its final name. So a restore that fails leaves nothing behind, and what it leaves was written
by the code of brokers.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple

from penstock.archive.checking import check_segment
from penstock.archive.cuts import Cut, CutPartition, CutTopic
from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.archive.names import TOPICS
from penstock.archive.reading import PartitionReader
from penstock.archive.restored_batches import end_markers, filler, restored
from penstock.archive.sweeping import cut_manifest
from penstock.backup.reading_ahead import objects_of
from penstock.backup.restored_groups import Target, commit_groups, groups_of
from penstock.backup.rights import create_acls, create_quotas
from penstock.backup.share_groups import set_share_groups
from penstock.backup.source import Cluster, SourceFailed
from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.base.system_ports import OsFiles
from penstock.broker.replica.partition import Partition
from penstock.model.config import BrokerConfig
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import error_name
from penstock.ports import ObjectStore, World
from penstock.wire.apis.create_topics import (
    CREATE_TOPICS,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

__all__ = ["QUIET", "Restored", "check_restorable", "chosen_topics", "restore_to_directory", "restore_with"]

#: configs of the broker of a restore: no background job changes what is restored
QUIET: Final = {
    "log.retention.check.interval.ms": str(2**62),
    "log.cleaner.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    # ACLs need an authorizer. The listener is on loopback, and its port is known to this process only.
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
}


class Restored(NamedTuple):
    """What was restored."""

    topics: int
    partitions: int
    log_bytes: int
    groups: int
    acls: int
    quotas: int
    #: ACLs and quotas of the source that Penstock refuses, with the reasons
    refused: list[str]


def chosen_topics(cut: Cut, names: Sequence[str]) -> list[CutTopic]:
    """The topics of a cut with these names, or all; ArchiveRefused for one that the cut does not have."""
    there = {topic.topic: topic for topic in cut.topics}
    for name in names:
        if name not in there:
            raise ArchiveRefused(f"the cut has no topic {name}: it has {', '.join(sorted(there)) or 'none'}")
    return [there[name] for name in dict.fromkeys(names)] if names else list(cut.topics)


async def check_restorable(store: ObjectStore, topics: Sequence[CutTopic]) -> dict[tuple[str, int], Manifest]:
    """The manifests of all partitions; ArchiveDamaged if an object is missing or has another size.

    Nothing is written. The bytes are verified when they are restored, and by `penstock backup verify`.
    """
    listed = {each.name: each.size for each in await store.listing(TOPICS)}
    manifests = {}
    for topic in topics:
        for partition in topic.partitions:
            manifest = await cut_manifest(store, topic, partition)
            async for entry in PartitionReader(store, manifest).segments():
                name = manifest.owner.object(entry.name)
                if listed.get(name) != entry.size:
                    found = "missing" if name not in listed else f"{listed[name]} bytes long"
                    raise ArchiveDamaged(f"the cut cannot be restored: {name} is {found}")
            manifests[topic.topic, partition.partition] = manifest
    return manifests


async def restore_to_directory(
    store: ObjectStore, cut: Cut, topics: Sequence[CutTopic], directory: Path, config: Mapping[str, str]
) -> Restored:
    """Restore topics of a cut, and the offsets of groups in them, into a new data directory."""
    beside = _beside(directory)
    manifests = await check_restorable(store, topics)
    beside.mkdir(parents=True)
    try:
        settings = {**config, "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(beside)}
        quiet = BrokerConfig({**settings, **QUIET})
        result = await restore_with(store, cut, topics, manifests, quiet, system_world(quiet))
        _finish(beside, directory)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return result


def _beside(directory: Path) -> Path:
    """The folder in which a restore works; ArchiveRefused if the directory is in use."""
    if directory.exists() and any(directory.iterdir()):
        raise ArchiveRefused(f"{directory} is not empty: restore into a new directory")
    beside = directory.with_name(f"{directory.name}.restoring")
    if beside.exists():
        raise ArchiveRefused(f"{beside} is left from a restore that was interrupted: remove it")
    return beside


def _finish(beside: Path, directory: Path) -> None:
    """Give the folder its final name, durably."""
    if directory.exists():
        directory.rmdir()
    beside.rename(directory)
    OsFiles().sync_dir(str(directory.parent))


async def restore_with(
    store: ObjectStore,
    cut: Cut,
    topics: Sequence[CutTopic],
    manifests: Mapping[tuple[str, int], Manifest],
    config: BrokerConfig,
    world: World,
) -> Restored:
    """Restore with a broker of this config, which runs meanwhile and is stopped at the end."""
    broker = await Broker.open(config, world)
    try:
        await broker.start()
        client = Cluster(broker.address, broker.stages.world.rng)
        try:
            await client.refresh()
            await _create(client, topics)
            log_bytes = 0
            for topic in topics:
                for partition in topic.partitions:
                    slot = broker.stages.storage.partitions.find(topic.topic, partition.partition)
                    if not isinstance(slot, Partition):
                        raise SourceFailed(f"{topic.topic}-{partition.partition} has not been created")
                    manifest = manifests[topic.topic, partition.partition]
                    log_bytes += await _write(store, manifest, partition, slot, cut.time_ms)
            await broker.stages.cluster.node.service.reserve_producer_ids(cut.next_producer_id)
            targets = [Target(topic, topic.topic) for topic in topics]
            groups = groups_of(cut, targets)
            await commit_groups(client, groups.consumer, targets)
            await set_share_groups(client, groups.share, targets, broker.stages.world.rng)
            # Some topics are for a cluster that has its own rights.
            is_whole = len(topics) == len(cut.topics)
            acls, quotas = (cut.acls or (), cut.quotas or ()) if is_whole else ((), ())
            refused = [*await create_acls(client, acls), *await create_quotas(client, quotas)]
        finally:
            client.close()
    finally:
        await broker.stop()
    return Restored(
        len(topics), len(manifests), log_bytes, sum(map(len, groups)), len(acls), len(quotas), refused
    )


async def _create(client: Cluster, topics: Sequence[CutTopic]) -> None:
    wanted = [
        CreatableTopic(
            name=topic.topic,
            num_partitions=len(topic.partitions),
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in Target(topic, topic.topic).configs.items()
            ],
        )
        for topic in topics
    ]
    if not wanted:
        return
    answer = await client.send_any(CREATE_TOPICS, CreateTopicsRequest(topics=wanted))
    for each in answer.topics:
        if each.error_code:
            reason = each.error_message or error_name(each.error_code)
            raise ArchiveRefused(f"topic {each.name} cannot be created: {reason}")
    await client.refresh()


async def _write(
    store: ObjectStore, manifest: Manifest, partition: CutPartition, target: Partition, time_ms: int
) -> int:
    """Write the batches of one partition; returns their bytes."""
    target.log.reset_to(manifest.base_offset)
    size = 0
    state = None
    async with aclosing(objects_of(store, manifest)) as objects:
        async for entry, data in objects:
            name = manifest.owner.object(entry.name)
            checked = check_segment(data, entry, manifest.owner, state)
            state = checked.state
            size += _append(target, restored(checked.log, partition, target.leader_epoch, name))
    for batch in filler(target.log.end_offset, partition.end_offset, target.leader_epoch):
        size += _append(target, bytearray(batch))
    for marker in end_markers(partition, target.leader_epoch, time_ms):
        size += _append(target, bytearray(marker))
    end = partition.end_offset + len(partition.open)
    if target.log.end_offset != end:
        raise ArchiveDamaged(f"{manifest.owner} ends at {target.log.end_offset} instead of {end}")
    target.follow_watermarks(end, 0, 0)
    target.log.start_at(partition.log_start_offset)
    return size


def _append(target: Partition, batches: bytearray) -> int:
    if batches and target.append_replicated(memoryview(batches), target.leader_epoch) != len(batches):
        raise ArchiveDamaged(f"{target.name} has a gap that compaction does not explain")
    return len(batches)
