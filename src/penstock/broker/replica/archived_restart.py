"""Starts a follower over behind the records that only the archive of tiered storage has (KIP-405).

Its leader does not have the follower's next record on its disk. The follower does not copy the archive: it
takes leader epochs and producers from there, and fetches from where an archived segment ends, at or behind
the leader's local log start. Until then it stays as it is.

Invariant: records of the follower are dropped only if the archive has them, by their leader epochs, and only
for a start at which the leader has the same history as the archive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.leader_offsets import archived_bounds, leader_epoch_end
from penstock.broker.replica.links import ArchivedState, ReadArchivedState
from penstock.broker.replica.partition import Partition
from penstock.model.errors import PenstockError
from penstock.net.client import Peer
from penstock.ports import Clock, Workers
from penstock.replication.follower import FollowerState
from penstock.storage.config import FOREVER
from penstock.storage.log import Log

__all__ = ["ArchivedRestarts", "Restart"]

log = get_logger("replica_fetcher")
_TIMEOUT_S: Final = 10.0
_AGAIN_S: Final = 1.0


class Restart(NamedTuple):
    """A follower that is to start over."""

    partition: Partition
    state: FollowerState
    peer: Peer
    #: returns false once the partition is not followed in this leader epoch any more
    is_current: Callable[[], bool]
    #: plans the next fetch
    done: Callable[[], None]


class ArchivedRestarts:
    """The followers of one fetcher; at most one restart per partition is under way."""

    def __init__(
        self, node_id: int, clock: Clock, workers: Workers, read_state: ReadArchivedState | None
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._workers = workers
        self._read_state = read_state
        self._tasks: dict[Partition, asyncio.Task[None]] = {}

    def begin(self, restart: Restart) -> None:
        """Have a follower start over. Its fetches are repeated meanwhile, and a failure is tried again.

        One that lacks its history does not fetch before.
        """
        partition = restart.partition
        if partition.log.lacks_history:
            restart.state.pause(FOREVER)
        if partition not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._run(restart))
            self._tasks[partition] = task
            task.add_done_callback(lambda _: self._tasks.pop(partition, None))

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, restart: Restart) -> None:
        partition, state = restart.partition, restart.state
        while True:
            try:
                await self._restart(restart)
                state.pause(0)
                break
            except (PenstockError, OSError) as e:
                log.warning("replica_restart_failed", partition=partition.name, error=str(e) or repr(e))
            if not (partition.log.lacks_history and restart.is_current()):
                # The next fetch gets the same answer, and begins again.
                state.failed(self._now_ms())
                break
            await asyncio.sleep(_AGAIN_S)
        if restart.is_current():
            restart.done()

    async def _restart(self, restart: Restart) -> None:
        partition, state, peer, is_current, _ = restart
        if self._read_state is None:
            raise PenstockError("the leader has records in an archive, which this broker does not read")
        epoch = state.leader_epoch
        log_start, local_start = await archived_bounds(peer, self._node_id, partition, epoch, _TIMEOUT_S)
        if local_start <= log_start:
            # The leader has all of its records. Ours has none, and no history to go on with.
            if is_current() and partition.log.lacks_history:
                partition.log.reset_to(log_start)
            return
        archived = await self._read_state(partition, log_start, local_start)
        theirs = await leader_epoch_end(
            peer, self._node_id, partition, epoch, archived.epochs.latest, _TIMEOUT_S
        )
        if theirs.epoch != archived.epochs.latest or theirs.end_offset < archived.offset:
            raise PenstockError(
                f"leader epoch {archived.epochs.latest} reaches {archived.offset} in the archive, and the "
                f"leader has epoch {theirs.epoch} to {theirs.end_offset}"
            )
        if is_current():
            await self._start_over(partition, state, log_start, archived)

    async def _start_over(
        self, partition: Partition, state: FollowerState, log_start: int, archived: ArchivedState
    ) -> None:
        opened = partition.log
        if opened.end_offset >= archived.offset and not opened.lacks_history:
            return
        check_archived(opened, archived)
        epochs = archived.epochs.within(log_start, archived.offset)
        state.pause(FOREVER)
        before = opened.end_offset
        opened.restart_behind(archived.offset, log_start, epochs, archived.producers)
        plan = opened.flush_plan()
        try:
            await self._workers.in_thread(plan.sync)
        except BaseException:
            opened.flush_failed(plan)
            raise
        opened.flushed(plan)
        log.info(
            "replica_restarted_behind_archive",
            partition=partition.name,
            end_offset=before,
            offset=archived.offset,
            log_start_offset=log_start,
        )

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def check_archived(opened: Log, archived: ArchivedState) -> None:
    """PenstockError unless the archive has the records of a log, as far as leader epochs tell."""
    start, end = opened.local_log_start_offset, opened.end_offset
    if (
        start < end
        and archived.epochs.within(start, end)[::2] != opened.leader_epochs.within(start, end)[::2]
    ):
        raise PenstockError(f"the archive has other leader epochs than this log between {start} and {end}")
