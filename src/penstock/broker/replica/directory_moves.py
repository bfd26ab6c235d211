"""Moves replicas between the data directories of a broker while they are in use (KIP-113).

A request makes a future replica in the other directory, durably. One task copies the replicas in turn, each
in passes (`storage.future_copy`), and rolls the last segment between two passes, so that the rest becomes
small. For the last pass the replica is taken out of service between two changes of the metadata. Then the
copy is put in its place (`storage.moved_folders`) and opened. Clients and followers try again meanwhile.

A move ends without an effect if the topic is deleted, the replica goes to another broker, another move is
requested, or the other directory fails. After a restart the future replicas are copied again from the start.

Invariant: the log in use is the only one that this module does not write to, until its copy is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.links import ClusterLinks
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import StorageError
from penstock.ports import World
from penstock.replication.fetch_plan import PartitionKey
from penstock.storage.directory import DataDirectory
from penstock.storage.folders import StoredPartition
from penstock.storage.future_copy import CopyFailed, FutureCopy, SourceFailed
from penstock.storage.log import Log
from penstock.storage.moved_folders import MoveUnfinished, future_folders, move
from penstock.storage.removal import PartitionRemoval, Removals

__all__ = ["DirectoryMoves", "FutureReplica"]

log = get_logger("replicas")
#: bytes between two looks at the move, and between two waits for the throttle
_SLICE_BYTES: Final = 1 << 20
#: with fewer bytes to copy, the replica is taken out of service for the last pass
_LITTLE_BYTES: Final = 4 << 20
#: before a move that could not read its source, or whose replica is offline, is tried again
_RETRY_S: Final = 1.0
#: before a log that is written to faster than it is copied lets compaction go first
_PASSES_MAX: Final = 16
_NO_LIMIT: Final = 2**63 - 1


class FutureReplica:
    """A replica that is being copied to another data directory."""

    __slots__ = (
        "cancelled",
        "copy",
        "generation",
        "index",
        "leaving",
        "stored",
        "target",
        "topic",
        "topic_id",
    )

    def __init__(self, stored: StoredPartition, target: DataDirectory, copy: FutureCopy) -> None:
        self.stored = stored
        self.topic, self.index, self.topic_id = stored
        self.target = target
        self.copy = copy
        #: the number of truncations of the log when the last pass began
        self.generation = -1
        self.cancelled = False
        #: the replica in its old directory while it is out of service
        self.leaving: Partition | None = None


class DirectoryMoves:
    """The moves of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        image: ClusterImage,
        partitions: Partitions,
        withdraw: Callable[[Partition], None],
        cluster: ClusterLinks,
    ) -> None:
        """`withdraw` ends the role of a replica."""
        self._config = config
        self._world = world
        self._image = image
        self._partitions = partitions
        self._withdraw = withdraw
        self._between_changes = cluster.between_changes
        self._futures: dict[PartitionKey, FutureReplica] = {}
        self._in_thread = world.workers.in_thread
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        #: held by one request at a time: the later of two about one replica counts
        self._requests = asyncio.Lock()

    async def stop(self) -> None:
        """Return when nothing is copied or moved any more. The future replicas stay on the disks."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    def __len__(self) -> int:
        return len(self._futures)

    def __iter__(self) -> Iterator[FutureReplica]:
        return iter(self._futures.values())

    # -- requests

    async def request(self, partition: Partition, target: DataDirectory) -> None:
        """Begin to move a replica; StorageError if the directory cannot take it, or in an exchange.

        An earlier move to another directory ends. A replica that is in the directory already stays there.
        """
        async with self._requests:
            await self._request((partition.topic_id, partition.index), target)

    async def _request(self, key: PartitionKey, target: DataDirectory) -> None:
        # Found again: another request, or the exchange, may have come first.
        partition, earlier = self._partitions.find(*key), self._futures.get(key)
        if not isinstance(partition, Partition):
            raise StorageError(f"partition {key[1]} is out of service: try again")
        if earlier is not None and earlier.target is target:
            return
        if earlier is not None:
            await self._end(key, earlier, "another move was requested")
        if partition.directory is target:
            return
        stored = StoredPartition(partition.topic, partition.index, partition.topic_id)
        copy = FutureCopy(self._world.files, partition.log.path, target.path, stored)
        try:
            await self._in_thread(copy.begin)
        except (CopyFailed, SourceFailed) as e:
            raise StorageError(str(e)) from e
        # Not earlier: the task must not copy while what an earlier move has left is removed.
        self._futures[key] = FutureReplica(stored, target, copy)
        log.info(
            "replica_move_started", partition=partition.name, source=partition.directory.path, to=target.path
        )
        self._start()

    async def _ended(self, key: PartitionKey, future: FutureReplica, reason: str) -> None:
        """As `_end`, for the task: no request makes the same future replica while the copy is removed."""
        async with self._requests:
            await self._end(key, future, reason)

    async def _end(self, key: PartitionKey, future: FutureReplica, reason: str) -> None:
        """End a move without an effect, and remove the copy."""
        if self._futures.get(key) is not future:
            return
        del self._futures[key]
        future.cancelled = True
        log.info(
            "replica_move_ended",
            partition=f"{future.topic}-{future.index}",
            to=future.target.path,
            reason=reason,
        )
        try:
            await self._in_thread(future.copy.discard)
        except OSError as e:
            log.error("future_replica_left", path=future.copy.path, error=str(e))

    async def resume(self) -> None:
        """After a start: go on with the moves whose future replicas are on the disks."""
        files = self._world.files
        for target in self._partitions.directories:
            if target.health.offline is not None:
                continue
            for path, identity in await self._in_thread(future_folders, files, target):
                slot = None if identity is None else self._partitions.find(*identity)
                if not isinstance(slot, Partition):
                    # Its log may be in a directory that is missing. Nothing is deleted without it.
                    log.warning("future_replica_ignored", path=path)
                    continue
                try:
                    if slot.directory is target:
                        await self._in_thread(files.rmtree, path)
                    else:
                        await self.request(slot, target)
                except (StorageError, OSError) as e:
                    log.error("replica_move_failed", partition=slot.name, to=target.path, error=str(e))

    # -- the task

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Copy one replica after the other. One that has to wait lets the others go first."""
        while self._futures and not self._stopping.is_set():
            went_on = False
            for key, future in list(self._futures.items()):
                if not self._stopping.is_set():
                    went_on |= await self._advance(key, future)
            if not went_on:
                await self._pause(_RETRY_S)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _advance(self, key: PartitionKey, future: FutureReplica) -> bool:
        """Copy and move one replica; returns false if it has to be tried again later."""
        name, to = f"{future.topic}-{future.index}", future.target.path
        try:
            return await self._moved(key, future)
        except SourceFailed as e:
            log.warning("replica_move_delayed", partition=name, to=to, error=str(e))
            return False
        except (CopyFailed, StorageError, OSError) as e:
            log.error("replica_move_failed", partition=name, to=to, error=str(e))
            await self._ended(key, future, str(e))
        except Exception as e:
            # The moves of other replicas go on. A restart tries again.
            log.error("replica_move_failed", partition=name, to=to, error=repr(e), exc_info=e)
            self._futures.pop(key, None)
        return True

    async def _moved(self, key: PartitionKey, future: FutureReplica) -> bool:
        """As `_advance`; raises if the move fails."""
        if not self._partitions.hosts(*key):
            await self._ended(key, future, "the replica is not on this broker any more")
            return True
        partition = self._partitions.find(*key)
        if not isinstance(partition, Partition) or not self._is_wanted(partition, future):
            return future.cancelled
        if partition.log.path != future.copy.source:
            await self._ended(key, future, "the replica is in another directory by now")
            return True
        if partition.log.recovery.corruption:
            # It is repaired first: the copy would have the damage, and nothing that tells of it.
            return False
        await self._check_room(future)
        await self._pass(partition, future, settled=False)
        async with partition.rewriting:
            for number in range(_PASSES_MAX):
                left = await self._pass(partition, future, settled=number > 0)
                if not self._is_wanted(partition, future):
                    return future.cancelled
                # Nothing is appended on a full disk, and a segment cannot be rolled there.
                if left <= _LITTLE_BYTES or partition.health.full is not None:
                    await self._between_changes(lambda: self._exchange(partition, future))
                    return True
        return False

    def _is_wanted(self, partition: Partition, future: FutureReplica) -> bool:
        return partition.is_online and not (future.cancelled or self._stopping.is_set())

    async def _check_room(self, future: FutureReplica) -> None:
        """Raise CopyFailed if the rest of the log does not fit: the other logs there must not lack room."""
        needed = await self._in_thread(future.copy.missing_bytes)
        space = await self._in_thread(future.target.space)
        if space.usable < needed:
            raise CopyFailed(f"{future.target.path} has {space.usable} bytes left, and {needed} are needed")

    async def _pass(self, partition: Partition, future: FutureReplica, *, settled: bool) -> int:
        """Copy all but the last segment; returns the bytes that were new, and those of the last segment.

        With `settled`, no file has been rewritten since the pass before.
        """
        opened = partition.log
        if opened.segments.active.size > _LITTLE_BYTES and partition.health.full is None:
            opened.roll()
        active, copied = opened.segments.active, 0
        steps = self._steps(opened, future, active.base_offset, settled=settled)
        while (size := await self._in_thread(next, steps, None)) is not None:
            copied += size
            await self._throttle(size, partition, future)
            if not self._is_wanted(partition, future):
                break
        return copied + opened.segments.active.size

    def _steps(
        self, opened: Log, future: FutureReplica, active: int | None, *, settled: bool
    ) -> Iterator[int]:
        """The slices of a pass. A log that was truncated since the pass before is not settled."""
        generation, future.generation = future.generation, opened.durability.generation
        same = settled and generation == future.generation
        return future.copy.copy(self._world.clock.now_ms(), _SLICE_BYTES, active, same)

    async def _throttle(self, size: float, partition: Partition, future: FutureReplica) -> None:
        while size > 0 and self._is_wanted(partition, future):
            rate = self._config.replica_alter_log_dirs_io_max_bytes_per_second
            if rate >= _NO_LIMIT:
                return
            seconds = min(size / max(rate, 1), _RETRY_S)
            await self._pause(seconds)
            size -= seconds * rate

    # -- the exchange

    async def _exchange(self, partition: Partition, future: FutureReplica) -> None:
        """Take the replica out of service, complete the copy, put it in the place of the log, and open it."""
        key, topic = (partition.topic_id, partition.index), self._image.topics_by_id.get(partition.topic_id)
        if (
            topic is None
            or self._partitions.find(*key) is not partition
            or not self._is_wanted(partition, future)
            # The damage was found while the log was copied.
            or partition.log.recovery.corruption
        ):
            return
        source, target, began = partition.directory, future.target, self._world.clock.monotonic()
        removal = source.partition_removal(partition.topic, partition.index)
        future.leaving = partition
        self._withdraw(partition)
        self._partitions.take_out(topic, partition.index)
        try:
            await self._complete(partition, future, removal)
        except MoveUnfinished as e:
            log.error("replica_move_unfinished", partition=partition.name, to=target.path, error=str(e))
            self._futures.pop(key, None)
            self._partitions.interrupt(topic, partition.index)
            return
        except (CopyFailed, SourceFailed, StorageError, OSError):
            source.close_log(partition.topic, partition.index, clean=False)
            target.let_go(partition.topic, partition.index)
            await self._partitions.put_in(topic, partition.index, source)
            future.leaving = None
            raise
        except BaseException:
            # It is not known which folder is the log, and no empty one may be made in its place.
            self._partitions.interrupt(topic, partition.index)
            raise
        source.let_go(partition.topic, partition.index)
        await self._partitions.put_in(topic, partition.index, target)
        self._futures.pop(key, None)
        self._partitions.delete_later(Removals([removal]), partition.sync.flusher)
        paused_ms = round((self._world.clock.monotonic() - began) * 1000)
        log.info(
            "replica_moved", partition=partition.name, source=source.path, to=target.path, paused_ms=paused_ms
        )

    async def _complete(self, partition: Partition, future: FutureReplica, removal: PartitionRemoval) -> None:
        """Nothing appends to the log any more: close it, copy the rest, and have the copy be the log."""
        opened, source, target = partition.log, partition.directory, future.target
        await partition.sync.flusher.let_go()
        plan = await self._in_thread(opened.seal)
        await self._in_thread(plan.sync)
        opened.flushed(plan)
        source.close_log(partition.topic, partition.index, clean=False)
        steps = self._steps(opened, future, None, settled=True)
        while await self._in_thread(next, steps, None) is not None:
            pass
        await self._in_thread(future.copy.check_complete)
        target.take_over(future.stored, opened)
        await self._partitions.checkpoints.write(target)
        await self._in_thread(move, self._world.files, future.stored, source, target, removal)
