"""Moves the messages of a delay partition to their target topic when they are due (penstock.delay.target).

The leader of the delay partition replays its log, and waits for the first message that is due. It commits a
plan to the log of the delay partition, writes the batch to the target with the producer id and the sequence
of the plan, and commits the end of the plan. A leader that takes over repeats the plans without an end. The
target refuses a batch that it has as a duplicate, so no message is written twice and none is lost.

A plan also ends if its batch cannot be written: the target is gone, or refuses it. The messages wait again. A
message that the target refuses is tried again after growing pauses, until the target takes it.

Owned by: the event loop's thread. One task per delay partition and term of its leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.replica.partition import Partition
from penstock.broker.shares.delay_source import DelaySource
from penstock.metadata.image import ClusterImage, TopicImage
from penstock.model.errors import ErrorCode, NotLeaderOrFollower, PenstockError
from penstock.model.murmur2 import murmur2
from penstock.ports import Clock, Workers
from penstock.records.record import Record
from penstock.shares.delay_batches import Delayed, batch_for, divided
from penstock.shares.delay_log import Done, Outcome, Plan, Target, build_done, build_plan
from penstock.shares.delay_schedule import NO_PRODUCER_ID, DelaySchedule, Sequences
from penstock.shares.deletion_delay import DeletionDelay

__all__ = ["DelayCounts", "DelayMover", "MoverParts"]

log = get_logger("delays")
_BATCH_RECORDS: Final = 200
_BATCH_BYTES: Final = 256 << 10
#: messages that are read for the plans of one round
_ROUND_BYTES: Final = 1 << 20
#: the most bytes of a plan beside its offsets, and of an offset in it
_PLAN_BYTES: Final = 450
_PLAN_OFFSET_BYTES: Final = 20
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0
#: the longest wait without a look at the clock, which may jump
_WAIT_MAX_S: Final = 10.0
#: errors that last until an operator changes the configs of the target
_REFUSALS: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD}
)
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
#: the target does not continue the sequence: it has lost batches of the producer id, and lacks this one
_SEQUENCE_LOST: Final = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DelayCounts:
    """What the movers of a broker could not deliver."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        #: attempts to write a single message that the target has refused
        self.refused = 0


class MoverParts(NamedTuple):
    """The parts of the broker that movers use."""

    image: ClusterImage
    clock: Clock
    workers: Workers
    writer: TopicWriter
    #: returns None while there is none
    new_producer_id: Callable[[], int | None]
    #: max.message.bytes of a topic, as far as this broker knows
    message_bytes_max: Callable[[str], int]
    counts: DelayCounts
    #: logs a limited number of warnings: each refused message causes some, for as long as it is refused
    warn: Callable[..., None]
    #: how long messages stay in the log after they were moved
    delete_delay_ms: int = 0


class DelayMover:
    """One delay partition in one term of its leader."""

    def __init__(
        self, partition: Partition, target: str, parts: MoverParts, schedule: DelaySchedule | None = None
    ) -> None:
        self._partition = partition
        self._target = target
        self._parts = parts
        self._image = parts.image
        self._clock = parts.clock
        self._warn = parts.warn
        self.leader_epoch = partition.leader_epoch
        self._source = DelaySource(partition, parts.workers)
        self._schedule = DelaySchedule() if schedule is None else schedule
        self._sequences = Sequences()
        self._deletion = DeletionDelay(parts.delete_delay_ms)
        self._grown = asyncio.Event()
        self._is_target_missing = False

    async def run(self) -> None:
        """Move messages until the broker no longer leads the partition."""
        partition, schedule = self._partition, self._schedule
        partition.readers.join(self)
        try:
            await self._wait_for_earlier_leaders()
            schedule.start_at(partition.log.log_start_offset)
            await self._replay()
            for plan in schedule.doubtful():
                await self._carry_out(plan)
            while True:
                self._check_leader()
                await self._replay()
                self._delete_moved()
                if await self._move_due():
                    continue
                if schedule.needs_pass(self._clock.now_ms()):
                    schedule.begin_pass(partition.log.log_start_offset)
                else:
                    await self._wait()
        except NotLeaderOrFollower:
            log.debug("delay_partition_resigned", partition=partition.name)
        finally:
            partition.readers.leave(self)

    def _delete_moved(self) -> None:
        """Let the log start follow the first message that waits."""
        partition = self._partition
        end = partition.log.high_watermark
        deletable = self._deletion.deletable(int(self._clock.monotonic() * 1000), end)
        partition.advance_log_start(min(self._schedule.first_needed(), end, deletable))

    @property
    def set_aside(self) -> int:
        """The number of messages that the target refuses."""
        return self._schedule.set_aside_count

    def more(self, size: int) -> None:
        """The partition has grown, or its role has changed."""
        self._grown.set()

    async def _wait(self) -> None:
        due = self._schedule.next_due()
        wait_s = _WAIT_MAX_S
        if due is not None:
            wait_s = min(wait_s, max(0, due - self._clock.now_ms()) / 1000)
        await self._grown_within(wait_s)

    async def _grown_within(self, wait_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._grown.wait()

    async def _wait_for_earlier_leaders(self) -> None:
        """Wait until everything in the log is committed, which includes all plans of earlier leaders.

        Why: the high watermark of a new leader may be behind plans that were committed, and carried out.
        """
        partition = self._partition
        end = partition.log.end_offset
        while partition.log.high_watermark < end:
            self._check_leader()
            self._grown.clear()
            await self._grown_within(_PAUSE_MAX_S)

    def _check_leader(self) -> None:
        if not self._partition.leading or self._partition.leader_epoch != self.leader_epoch:
            raise NotLeaderOrFollower

    # -- the log of the delay partition

    async def _replay(self) -> None:
        """Take over committed records that were not read yet.

        Messages are read up to the last stable offset. Plans behind an open transaction are read, too.
        """
        self._grown.clear()
        schedule, partition = self._schedule, self._partition
        schedule.deleted(partition.log.log_start_offset)
        while True:
            self._check_leader()
            stable = partition.log.last_stable_offset
            if schedule.messages_end < stable:
                start = schedule.messages_end
            elif schedule.progress_end < partition.log.high_watermark:
                start = schedule.progress_end
            else:
                return
            part = await self._source.part(start)
            if part.end <= start:
                return
            for offset, due in part.messages:
                if schedule.messages_end <= offset < stable:
                    schedule.add(offset, due)
            for position, progress in part.progress:
                if position >= schedule.progress_end:
                    schedule.replay(progress, position)
            if part.unreadable:
                log.error("delayed_messages_unreadable", partition=partition.name, offsets=part.unreadable)
            if start == schedule.messages_end:
                schedule.messages_end = min(part.end, stable)
            schedule.progress_end = max(schedule.progress_end, part.end)
            while schedule.is_full:
                await self._parts.workers.in_thread(schedule.prune)

    async def _append(self, batch: bytes) -> None:
        """Commit a control record of this partition, and replay it."""
        partition, schedule = self._partition, self._schedule
        pause_s = _PAUSE_S
        while True:
            self._check_leader()
            # Not to another leader: its mover would take the plan for one of its own.
            code = await self._parts.writer.append_here(partition.topic, partition.index, batch)
            if code is ErrorCode.NONE:
                break
            if code in _REFUSALS and pause_s == _PAUSE_S:
                log.warning("delay_plan_refused", partition=partition.name, error=code.name)
            pause_s = await _paused(pause_s)
        end = partition.log.end_offset
        await self._replay()
        while schedule.progress_end < end:
            await self._grown_within(_PAUSE_MAX_S)
            await self._replay()

    # -- moves

    async def _move_due(self) -> bool:
        """Move messages that are due. Returns false if there are none."""
        schedule, partition = self._schedule, self._partition
        room = partition.log.config.max_message_bytes - _PLAN_BYTES
        count_max = max(1, min(_BATCH_RECORDS, room // _PLAN_OFFSET_BYTES))
        due = schedule.due(self._clock.now_ms(), count_max)
        if not due:
            return False
        topic = self._image.topics.get(self._target)
        if topic is None:
            await self._miss_target()
            return True
        self._is_target_missing = False
        found = await self._source.messages(due, _ROUND_BYTES)
        messages = {offset: message for offset, message in found.items() if message is not None}
        for offset in found.keys() - messages.keys():
            schedule.forget(offset)
        bytes_max = min(_BATCH_BYTES, self._parts.message_bytes_max(topic.name))
        for index, offsets in list(
            divided(messages, partial(self._partition_for, topic), schedule.is_aside, bytes_max)
        ):
            if self._sequences.producer_id == NO_PRODUCER_ID:
                self._sequences.renew(await self._producer_id())
            plan = self._sequences.plan(Target(topic.name, index, topic.id), offsets)
            await self._append(build_plan(plan, self._clock.now_ms()))
            await self._carry_out(plan, {offset: messages[offset] for offset in offsets})
        return True

    async def _miss_target(self) -> None:
        if not self._is_target_missing:
            log.warning("delay_target_missing", partition=self._partition.name, target=self._target)
        self._is_target_missing = True
        await asyncio.sleep(_PAUSE_MAX_S)

    def _partition_for(self, topic: TopicImage, record: Record) -> int:
        chosen = self._partition.index if record.key is None else murmur2(record.key)
        return chosen % len(topic.partitions)

    async def _producer_id(self) -> int:
        while (found := self._parts.new_producer_id()) is None:
            self._check_leader()
            await asyncio.sleep(_PAUSE_S)
        return found

    async def _carry_out(self, plan: Plan, messages: Mapping[int, Delayed] | None = None) -> None:
        """Write the batch of a plan to the target, and commit the end of the plan."""
        if messages is None:
            found = await self._source.messages(plan.offsets, 1 << 62)
            messages = {offset: message for offset, message in found.items() if message is not None}
        code = await self._write(plan, messages) if messages else ErrorCode.NONE
        outcome = self._outcome(plan, code, messages)
        done = Done(plan.target, plan.sequence, plan.producer_id, outcome)
        await self._append(build_done(done, self._clock.now_ms()))
        if code in _REFUSALS:
            self._set_aside(messages)

    async def _write(self, plan: Plan, messages: Mapping[int, Delayed]) -> ErrorCode:
        """Write until the batch is committed or cannot be written."""
        target, pause_s = plan.target, _PAUSE_S
        may_compress = len(messages) == 1
        limit = self._parts.message_bytes_max(target.topic)
        while not self._is_gone(target):
            build = partial(batch_for, plan, messages.values(), limit, self._clock.now_ms())
            code = await self._attempt(target, await self._parts.workers.in_thread(build))
            if code in _TOO_LARGE and may_compress:
                # The leader of the target has another message.max.bytes than this broker.
                may_compress, limit = False, 0
                continue
            if code in (ErrorCode.NONE, _SEQUENCE_LOST) or code in _REFUSALS:
                return code
            if code is ErrorCode.INVALID_REQUEST and target.topic != self._target:
                # A topic that is no longer the target does not take messages.
                return code
            pause_s = await _paused(pause_s)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def _attempt(self, target: Target, batch: bytes) -> ErrorCode:
        self._check_leader()
        try:
            code = await self._parts.writer.write(target.topic, target.partition, batch)
        except (PenstockError, TimeoutError) as e:
            log.debug("delayed_messages_not_sent", target=target.topic, error=str(e))
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER else code

    def _is_gone(self, target: Target) -> bool:
        """Returns true if the topic was deleted. A topic of the same name is another target."""
        if target.topic_id is None:
            return target.topic not in self._image.topics
        return target.topic_id not in self._image.topics_by_id

    def _outcome(self, plan: Plan, code: ErrorCode, messages: Mapping[int, Delayed]) -> Outcome:
        if code is ErrorCode.NONE:
            self._sequences.moved(plan)
            return Outcome.MOVED
        # A late copy of this batch must not be taken for one of the next plan.
        self._sequences.renew(NO_PRODUCER_ID)
        name, target = self._partition.name, plan.target.topic
        self._warn("delay_plan_failed", partition=name, offsets=plan.offsets, target=target, error=code.name)
        if code in _REFUSALS and len(messages) == 1:
            self._parts.counts.refused += 1
        return Outcome.RETURNED

    def _set_aside(self, messages: Mapping[int, Delayed]) -> None:
        """Try refused messages again: several at once, each in a batch of its own; a single one later."""
        now_ms = self._clock.now_ms()
        for offset in messages:
            if len(messages) == 1:
                self._schedule.refuse(offset, now_ms)
            else:
                self._schedule.set_aside(offset, now_ms)


async def _paused(pause_s: float) -> float:
    """Wait; returns the next pause."""
    await asyncio.sleep(pause_s)
    return min(2 * pause_s, _PAUSE_MAX_S)
