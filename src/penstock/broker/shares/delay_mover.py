"""Moves the messages of a delay partition to their target topic when they are due (penstock.delay.target).

The leader of the delay partition replays its log, and waits for the first message that is due. It commits a
plan to the log of the delay partition, writes the batch to the target with the producer id and the sequence
of the plan, and commits the end of the plan. A leader that takes over repeats the plans without an end. The
target refuses a batch that it has as a duplicate, so no message is written twice and none is lost.

Owned by: the event loop's thread. One task per delay partition and term of its leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.replica.partition import Partition
from penstock.metadata.image import ClusterImage
from penstock.model.delays import DELIVER_AT_HEADER
from penstock.model.errors import ErrorCode, NotLeaderOrFollower, PenstockError
from penstock.model.murmur2 import murmur2
from penstock.ports import Clock, Workers
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.shares.delay_log import Done, Plan, Target, build_done, build_plan, parse_progress
from penstock.shares.delay_schedule import NO_PRODUCER_ID, DelaySchedule, due_ms

__all__ = ["DelayMover"]

log = get_logger("delays")
_READ_BYTES: Final = 1 << 20
_BATCH_RECORDS: Final = 200
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0
#: the longest wait without a look at the clock, which may jump
_WAIT_MAX_S: Final = 10.0
#: errors that last until an operator changes the configs of the target
_REFUSALS: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD}
)


class DelayMover:
    """One delay partition in one term of its leader."""

    def __init__(
        self,
        partition: Partition,
        target: str,
        image: ClusterImage,
        clock: Clock,
        workers: Workers,
        writer: TopicWriter,
        new_producer_id: Callable[[], int | None],
    ) -> None:
        """`new_producer_id` returns None while there is none."""
        self._partition = partition
        self._target = target
        self._image = image
        self._clock = clock
        self._workers = workers
        self._writer = writer
        self._new_producer_id = new_producer_id
        self.leader_epoch = partition.leader_epoch
        self._schedule = DelaySchedule()
        self._grown = asyncio.Event()

    async def run(self) -> None:
        """Move messages until the broker no longer leads the partition."""
        partition = self._partition
        partition.waiters[self] = None
        try:
            self._schedule.end = partition.log.log_start_offset
            await self._replay()
            for plan in self._schedule.doubtful():
                await self._carry_out(plan)
            while True:
                await self._replay()
                partition.advance_log_start(min(self._schedule.first_needed(), partition.log.high_watermark))
                if not await self._move_due():
                    await self._wait()
        except NotLeaderOrFollower:
            log.debug("delay_partition_resigned", partition=partition.name)
        finally:
            partition.waiters.pop(self, None)

    def more(self, size: int) -> None:
        """The partition has grown, or its role has changed."""
        self._grown.set()

    async def _wait(self) -> None:
        due = self._schedule.next_due()
        wait_s = _WAIT_MAX_S
        if due is not None:
            wait_s = min(wait_s, max(0, due - self._clock.now_ms()) / 1000)
        try:
            async with asyncio.timeout(wait_s):
                await self._grown.wait()
        except TimeoutError:
            return
        self._grown.clear()

    def _check_leader(self) -> None:
        if not self._partition.leading or self._partition.leader_epoch != self.leader_epoch:
            raise NotLeaderOrFollower

    # -- the log of the delay partition

    async def _replay(self) -> None:
        """Take over committed records that were not read yet."""
        self._grown.clear()
        schedule, partition = self._schedule, self._partition
        while schedule.end < partition.log.high_watermark:
            self._check_leader()
            data = await self._read(max(schedule.end, partition.log.log_start_offset))
            found = await self._workers.in_thread(lambda: _decoded(data))  # noqa: B023
            for offset, item in found:
                if offset < schedule.end:
                    continue
                if isinstance(item, int):
                    schedule.add(offset, item)
                elif item is not None:
                    schedule.replay(item, offset)
            end = max((header.next_offset for _, header in iter_batches(data)), default=schedule.end)
            if end <= schedule.end:
                return
            schedule.end = end

    async def _read(self, offset: int) -> bytes:
        partition = self._partition

        def read() -> bytes:
            upper = partition.log.high_watermark
            found = partition.log.read(offset, _READ_BYTES, upper=upper, at_least_one=True, cached_only=True)
            return b"" if found is None else bytes(found.read())

        try:
            return await retry_when_cached(partition, self._workers, read)
        except OSError as e:
            raise partition.read_failed(e) from e

    async def _append(self, batch: bytes) -> None:
        """Commit a control record of this partition."""
        partition = self._partition
        await self._written(Target(partition.topic, partition.index), batch)

    # -- moves

    async def _move_due(self) -> bool:
        """Move messages that are due, one batch for each partition of the target. False if there are none."""
        schedule = self._schedule
        due = schedule.due(self._clock.now_ms(), _BATCH_RECORDS)
        topic = self._image.topics.get(self._target)
        if not due:
            return False
        if topic is None:
            log.warning("delay_target_missing", partition=self._partition.name, target=self._target)
            await asyncio.sleep(_PAUSE_MAX_S)
            return True
        if schedule.producer_id == NO_PRODUCER_ID:
            schedule.producer_id = await self._producer_id()
        by_target: dict[Target, list[int]] = {}
        for offset, record in (await self._records(due)).items():
            target = Target(self._target, self._partition_for(record, len(topic.partitions)))
            by_target.setdefault(target, []).append(offset)
        for target, offsets in by_target.items():
            plan = schedule.plan(target, offsets)
            await self._append(build_plan(plan, self._clock.now_ms()))
            await self._replay()
            await self._carry_out(plan)
        return True

    def _partition_for(self, record: Record, count: int) -> int:
        return (self._partition.index if record.key is None else murmur2(record.key)) % count

    async def _producer_id(self) -> int:
        while (found := self._new_producer_id()) is None:  # noqa: ASYNC110 - a block is on its way
            await asyncio.sleep(_PAUSE_S)
        return found

    async def _records(self, offsets: Sequence[int]) -> dict[int, Record]:
        """The messages by offset, in the given order."""
        found: dict[int, Record] = {}
        for offset in offsets:
            if offset not in found:
                data = await self._read(offset)
                first = next(iter_batches(data), None)
                if first is None:
                    continue
                batch = data[: first[1].size]
                records = await self._workers.in_thread(lambda: list(iter_records(batch)))  # noqa: B023
                found |= {record.offset: record for record in records}
        return {offset: found[offset] for offset in offsets if offset in found}

    async def _carry_out(self, plan: Plan) -> None:
        """Write the batch of a plan to the target, and commit the end of the plan."""
        records = await self._records(plan.offsets)
        moved = [
            record._replace(
                offset=n,
                timestamp=self._clock.now_ms(),
                headers=tuple(h for h in record.headers if h[0] != DELIVER_AT_HEADER),
            )
            for n, record in enumerate(records.values())
        ]
        if moved:
            batch = build_batch(
                moved, producer_id=plan.producer_id, producer_epoch=0, base_sequence=plan.sequence
            )
            if not await self._written(plan.target, batch):
                # The target has lost batches of this producer id, and does not have this one.
                self._schedule.producer_id = await self._producer_id()
                again = plan._replace(producer_id=self._schedule.producer_id)
                await self._append(build_plan(again, self._clock.now_ms()))
                await self._carry_out(again)
                return
        await self._append(build_done(Done(plan.target, plan.sequence), self._clock.now_ms()))

    async def _written(self, target: Target, batch: bytes) -> bool:
        """Write until it is committed. Returns false if the target does not continue the sequence."""
        pause_s = _PAUSE_S
        was_refused = False
        while True:
            self._check_leader()
            try:
                code = await self._writer.write(target.topic, target.partition, batch)
            except (PenstockError, TimeoutError) as e:
                log.debug("delayed_messages_not_sent", target=target.topic, error=str(e))
            else:
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    return True
                if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    return False
                if code in _REFUSALS and not was_refused:
                    was_refused = True
                    log.warning("delayed_messages_refused", target=target.topic, error=code.name)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def _decoded(data: bytes) -> list[tuple[int, int | Plan | Done | None]]:
    """Offsets of messages with their delivery times, and of control records with their content."""
    found: list[tuple[int, int | Plan | Done | None]] = []
    for position, header in iter_batches(data):
        batch = data[position : position + header.size]
        if header.is_control:
            found.append((header.base_offset, parse_progress(batch)))
        else:
            found += [(record.offset, due_ms(record)) for record in iter_records(batch)]
    return found
