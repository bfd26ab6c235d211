"""Quarantines the log of a follower whose leader lacks committed records; the log is fetched again.

A leader that was elected cleanly has everything that its followers know to be committed. A leader that lacks
some of it was elected without proof: its log may be the one that is wrong. So the follower keeps its log, in
the quarantine, and gets an empty one. The same is done with a log that has sound records behind damage, which
would have to be truncated. Only the log of a topic with unclean elections is truncated in place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.metadata.image import ClusterImage
from penstock.replication.fetch_plan import PartitionKey

__all__ = ["FollowerQuarantine"]

log = get_logger("replicas")


class FollowerQuarantine:
    """Of the replicas of one broker."""

    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        partitions: Partitions,
        leave: Callable[[PartitionKey], None],
        between_changes: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
    ) -> None:
        """`leave` ends fetching a partition; `between_changes` runs work while no metadata is applied."""
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._leave = leave
        self._between_changes = between_changes
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Return when no log is being moved any more."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def set_aside(self, partition: Partition, leader: int, offset: int, *, damaged: bool = False) -> bool:
        """Quarantine the log of a follower that its leader wants to end, or to start, at `offset`.

        With `damaged`, the log has damage at `offset`, and sound records behind it.
        False if the replica is in the ISR or the ELR: it is reported to the controller first, and the
        follower fetches again in a moment.
        """
        key = (partition.topic_id, partition.index)
        end_offset = partition.log.end_offset
        if damaged:
            wish = f"may lack records that lie behind the damage at {offset}"
        elif offset < end_offset:
            wish = f"wants it truncated to {offset}"
        else:
            wish = f"has a log that starts at {offset}"
        reason = (
            f"leader {leader} {wish} in leader epoch {partition.leader_epoch}; it ends at {end_offset} and "
            f"its high watermark is {partition.log.high_watermark}"
        )
        wanted = self._image.topics_by_id[partition.topic_id].partitions[partition.index]
        if self._node_id in wanted.isr or self._node_id in wanted.elr:
            self._partitions.mark_unclean(*key, reason)
            return False
        log.error("replica_set_aside", partition=partition.name, reason=reason)
        self._leave(key)
        task = asyncio.get_running_loop().create_task(self._quarantine(partition, reason))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _quarantine(self, partition: Partition, reason: str) -> None:
        """Move the log, unless another leader epoch has begun before no metadata is being applied."""
        leader_epoch = partition.leader_epoch

        async def move() -> None:
            topic = self._image.topics_by_id.get(partition.topic_id)
            found = self._partitions.find(partition.topic_id, partition.index)
            if topic is not None and found is partition and partition.leader_epoch == leader_epoch:
                self._leave((partition.topic_id, partition.index))
                await self._partitions.quarantine(topic, partition.index, reason)

        await self._between_changes(move)
