"""Restores topics of a cut into a running Penstock cluster, with the offsets that they had.

The topics are created with `penstock.restoring`, so that only the restore writes to them. Leaders append the
batches at their offsets, and followers replicate them as any others. Producers of transactions get new ids:
those of the source may be in use. Group offsets are committed when all batches are there, and the topics are
opened to producers at the end. A restore that fails deletes the topics that it has created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from penstock.archive.batches import split_batches
from penstock.archive.building import checked_header
from penstock.archive.checking import check_segment
from penstock.archive.cuts import Cut, CutPartition
from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.restored_batches import end_markers, filler, restored, transactional_producers
from penstock.backup.destination import Destination
from penstock.backup.reading_ahead import objects_of
from penstock.backup.restored_groups import Target, commit_groups, groups_of
from penstock.backup.restoring import Restored, check_restorable
from penstock.backup.rights import create_acls, create_quotas
from penstock.backup.share_groups import set_share_groups
from penstock.backup.source import EARLIEST, Cluster, SourceFailed
from penstock.broker.base.system_ports import SystemRng
from penstock.model.ids import TopicPartition
from penstock.ports import ObjectStore
from penstock.wire.apis.produce import RestoredPart

__all__ = ["restore_to_cluster"]

#: partitions that are written at the same time
_PARALLEL: Final = 4
#: of one request
_BYTES: Final = 1 << 20
_BATCHES: Final = 500
#: The leader writes its own epoch over it.
_ANY_EPOCH: Final = 0


async def restore_to_cluster(
    store: ObjectStore,
    cut: Cut,
    targets: Sequence[Target],
    client: Cluster,
    groups: Sequence[str] = (),
    *,
    rights: bool = False,
    replication_factor: int | None = None,
) -> Restored:
    """Restore topics of a cut, and the offsets of groups in them; `rights` also sets ACLs and quotas."""
    wanted = groups_of(cut, targets, groups)
    manifests = await check_restorable(store, [target.topic for target in targets])
    destination = Destination(client, replication_factor)
    await destination.check(targets, wanted.consumer, wanted.share)
    try:
        await destination.create(targets)
        log_bytes = await _write_all(store, cut, targets, manifests, destination)
        await _check_ends(client, targets)
        await commit_groups(client, wanted.consumer, targets)
        await set_share_groups(client, wanted.share, targets, SystemRng())
        await destination.finish(targets)
    except BaseException as e:
        left = await destination.undo()
        if left:
            raise SourceFailed(f"{e}; delete the topics that are left: {', '.join(left)}") from e
        raise
    acls, quotas = (cut.acls or (), cut.quotas or ()) if rights else ((), ())
    refused = [*await create_acls(client, acls), *await create_quotas(client, quotas)]
    return Restored(
        len(targets), len(manifests), log_bytes, sum(map(len, wanted)), len(acls), len(quotas), refused
    )


async def _write_all(
    store: ObjectStore,
    cut: Cut,
    targets: Sequence[Target],
    manifests: Mapping[tuple[str, int], Manifest],
    destination: Destination,
) -> int:
    """Write all partitions, some at the same time; returns their bytes."""
    free = asyncio.Semaphore(_PARALLEL)

    async def write(target: Target, partition: CutPartition) -> int:
        async with free:
            key = TopicPartition(target.name, partition.partition)
            manifest = manifests[target.topic.topic, partition.partition]
            return await _Writer(store, manifest, partition, destination, key).write(cut.time_ms)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(write(target, partition))
                for target in targets
                for partition in target.topic.partitions
            ]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return sum(task.result() for task in tasks)


async def _check_ends(client: Cluster, targets: Sequence[Target]) -> None:
    """The cluster has all offsets: SourceFailed if a partition starts or ends elsewhere."""
    wanted = {
        TopicPartition(target.name, each.partition): (each.log_start_offset, _end_of(each))
        for target in targets
        for each in target.topic.partitions
    }
    ends, starts = await client.end_offsets(wanted), await client.end_offsets(wanted, EARLIEST)
    for key, (start, end) in wanted.items():
        # Retention may have begun already.
        if ends[key] != end or not start <= starts[key] <= end:
            raise SourceFailed(f"{key} has the offsets {starts[key]} to {ends[key]}, not {start} to {end}")


def _end_of(partition: CutPartition) -> int:
    """The end offset with the markers of open transactions."""
    return partition.end_offset + len(partition.open)


class _Chunk(NamedTuple):
    """Whole batches for one request, and the offset behind them."""

    batches: memoryview
    next_offset: int


class _Writer:
    """Writes one partition."""

    def __init__(
        self,
        store: ObjectStore,
        manifest: Manifest,
        partition: CutPartition,
        destination: Destination,
        key: TopicPartition,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._partition = partition
        self._destination = destination
        self._key = key
        self._next_offset = manifest.base_offset

    async def write(self, time_ms: int) -> int:
        """Write all batches; returns their bytes."""
        manifest, partition, destination = self._manifest, self._partition, self._destination
        await self._send(_Chunk(memoryview(b""), self._next_offset), is_first=True)
        size, state = 0, None
        async with aclosing(objects_of(self._store, manifest)) as objects:
            async for entry, data in objects:
                name = manifest.owner.object(entry.name)
                checked = check_segment(data, entry, manifest.owner, state)
                state = checked.state
                await destination.allocate(transactional_producers(checked.log, name))
                ids = destination.producer_ids
                batches = restored(checked.log, partition, _ANY_EPOCH, name, ids)
                for chunk in _chunks(memoryview(batches), name):
                    await self._send(chunk)
                size += len(batches)
        await destination.allocate({each.producer_id for each in partition.open})
        rest = bytearray().join(
            [
                *filler(self._next_offset, partition.end_offset, _ANY_EPOCH),
                *end_markers(partition, _ANY_EPOCH, time_ms, destination.producer_ids),
            ]
        )
        for chunk in _chunks(memoryview(rest), str(self._key)):
            await self._send(chunk)
        if self._next_offset != _end_of(partition):
            raise ArchiveDamaged(f"{manifest.owner} ends at {self._next_offset}, not at {_end_of(partition)}")
        await self._send(_Chunk(memoryview(b""), self._next_offset), partition.log_start_offset)
        return size + len(rest)

    async def _send(self, chunk: _Chunk, log_start_offset: int = -1, *, is_first: bool = False) -> None:
        part = RestoredPart(
            next_offset=self._next_offset, is_first=is_first, log_start_offset=log_start_offset
        )
        await self._destination.append(self._key, chunk.batches, part, chunk.next_offset)
        self._next_offset = chunk.next_offset


def _chunks(batches: memoryview, name: str) -> Iterator[_Chunk]:
    """The batches in pieces for one request each."""
    start = position = count = 0
    next_offset = -1
    for batch in split_batches(batches, name):
        if count and (count == _BATCHES or position + len(batch) - start > _BYTES):
            yield _Chunk(batches[start:position], next_offset)
            start, count = position, 0
        position += len(batch)
        count += 1
        next_offset = checked_header(batch, name).next_offset
    if count:
        yield _Chunk(batches[start:position], next_offset)
