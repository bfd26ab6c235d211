"""Writes dead letters of share groups (KIP-1191) to their topics.

A dead letter is written, and committed, before its record is archived. If the topic does not exist, does not
permit dead letters, or cannot be written in time, the record is archived all the same.

Copies of records are read and written part by part: one read of the log, about 1 MiB, at a time. Memory is
bounded: only some writes hold such a part at once, per dead-letter partition and in all. The time limit of a
part begins after the wait for its turn. So a partition without a leader costs no other partition its letters.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from penstock.broker.base.logs import get_logger
from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.produce.topic_writer import TopicWriter
from penstock.broker.replica.partition import Partition
from penstock.broker.shares.group_settings import DeadLetterSettings, SharesConfig
from penstock.metadata.image import ClusterImage
from penstock.metadata.topics import NewTopic
from penstock.model.errors import ErrorCode, PenstockError, TopicAlreadyExists
from penstock.net.deferred import Deferred
from penstock.ports import Clock, FileRange, Workers
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.shares.dead_letters import Source, chunks, dead_letters, split_at
from penstock.shares.partition import Undeliverable

__all__ = ["DeadLetters"]

log = get_logger("shares")
#: for each part, from its turn on
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0
_READ_BYTES: Final = 1 << 20
#: the writes to one dead-letter partition, and to all of them, that may hold copies of records at a time
_COPYING_MAX: Final = 4
_COPYING_MAX_IN_ALL: Final = 32
#: the offsets of one part without copies
_PART_MAX: Final = 1000
_NO_COPIES: Final[Mapping[int, Record]] = {}
#: errors of an attempt that another attempt does not change
_FINAL: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class _NotWritten(Exception):
    """The reason why dead letters were not written."""


class DeadLetters:
    """The dead letters of all share groups of a broker."""

    def __init__(
        self,
        config: SharesConfig,
        image: ClusterImage,
        clock: Clock,
        workers: Workers,
        writer: TopicWriter,
        create_topic: Callable[[NewTopic], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`create_topic` raises the ApiError of the controller. `spawn` runs tasks until the broker stops."""
        self._config = config
        self._image = image
        self._clock = clock
        self._workers = workers
        self._writer = writer
        self._create_topic = create_topic
        self._spawn = spawn
        #: the turns of writes with copies, by dead-letter topic and partition, while there are any
        self._turns: weakref.WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = (
            weakref.WeakValueDictionary()
        )
        self._all_turns = asyncio.Semaphore(_COPYING_MAX_IN_ALL)
        #: dead letters, and records that were archived without one, since the start
        self.written = 0
        self.failed = 0

    def write(
        self, group_id: str, partition: Partition, undeliverable: Sequence[Undeliverable]
    ) -> Deferred[None]:
        """Write dead letters. Resolves when they are committed, or cannot be written."""
        done: Deferred[None] = Deferred()
        self._spawn(self._write(group_id, partition, undeliverable, done))
        return done

    async def _write(
        self,
        group_id: str,
        partition: Partition,
        undeliverable: Sequence[Undeliverable],
        done: Deferred[None],
    ) -> None:
        settings = self._config.of(group_id).dead_letters
        source = Source(group_id, partition.topic, partition.index)
        missing = sum(each.last - each.first + 1 for each in undeliverable)
        try:
            index = partition.index % await self._partition_count(settings)
            async for count in self._write_parts(settings, index, source, partition, undeliverable):
                self.written += count
                missing -= count
        except (_NotWritten, PenstockError, TimeoutError) as e:
            self.failed += missing
            log.warning(
                "dead_letters_not_written",
                group=group_id,
                partition=partition.name,
                topic=settings.topic,
                records=missing,
                error=str(e) or "timeout",
            )
        done.resolve(None)

    async def _write_parts(
        self,
        settings: DeadLetterSettings,
        index: int,
        source: Source,
        partition: Partition,
        undeliverable: Sequence[Undeliverable],
    ) -> AsyncIterator[int]:
        """Write dead letters part by part. Yields how many were committed, after each part."""
        rest = sorted(undeliverable, key=lambda each: each.first)
        while rest:
            async with self._turn(settings, index), asyncio.timeout(_PATIENCE_S):
                copies, last = _NO_COPIES, rest[0].first + _PART_MAX - 1
                if settings.copies_records:
                    copies, last = await self._copies(partition, rest)
                part, rest = split_at(rest, last)
                for chunk in chunks(dead_letters(source, part, copies, self._clock.now_ms())):
                    await self._write_batch(settings.topic, index, chunk)
            yield sum(each.last - each.first + 1 for each in part)

    @asynccontextmanager
    async def _turn(self, settings: DeadLetterSettings, index: int) -> AsyncIterator[None]:
        """Wait until copies for one more part may be in memory. Letters without copies do not wait."""
        if not settings.copies_records:
            yield
            return
        key = settings.topic, index
        turns = self._turns.get(key)
        if turns is None:
            turns = self._turns[key] = asyncio.Semaphore(_COPYING_MAX)
        # The partition's turn comes first: writes that wait for it leave the other turns to other partitions.
        async with turns, self._all_turns:
            yield

    # -- the topic

    async def _partition_count(self, settings: DeadLetterSettings) -> int:
        """The number of partitions of the topic, which is created if the cluster allows that."""
        name = settings.topic
        if name.startswith("__") or not name.startswith(settings.name_prefix):
            raise _NotWritten(
                f"The topic name {name!r} does not start with {settings.name_prefix!r} "
                "(errors.deadletterqueue.topic.name.prefix)"
            )
        if name not in self._image.topics:
            if not settings.creates_topics:
                raise _NotWritten(f"The topic {name!r} does not exist")
            try:
                await self._create_topic(
                    NewTopic(name, configs={"errors.deadletterqueue.group.enable": "true"})
                )
            except TopicAlreadyExists:
                log.debug("dead_letter_topic_exists", topic=name)
        topic = self._image.topics.get(name)
        if topic is None:
            raise _NotWritten(f"The topic {name!r} is being created")
        if not self._config.topic(name).takes_dead_letters:
            raise _NotWritten(f"The topic {name!r} does not have errors.deadletterqueue.group.enable=true")
        return len(topic.partitions)

    async def _write_batch(self, topic: str, index: int, records: Sequence[Record]) -> None:
        """Write until it succeeds. A batch that is too large is written without keys and values."""
        pause_s = _PAUSE_S
        batch = build_batch(records)
        is_stripped = False
        while True:
            try:
                code = await self._writer.write(topic, index, batch)
            except PenstockError as e:
                log.debug("dead_letters_not_sent", topic=topic, error=str(e))
            else:
                if code is ErrorCode.NONE:
                    return
                if code is ErrorCode.MESSAGE_TOO_LARGE and not is_stripped:
                    is_stripped = True
                    batch = build_batch(record._replace(key=None, value=None) for record in records)
                    continue
                if code in _FINAL:
                    raise _NotWritten(code.name)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    # -- copies

    async def _copies(
        self, partition: Partition, undeliverable: Sequence[Undeliverable]
    ) -> tuple[Mapping[int, Record], int]:
        """The first records by offset, and the last offset that was looked for.

        Records that retention has deleted meanwhile are left out.
        """
        end = undeliverable[-1].last
        offset = max(undeliverable[0].first, partition.log.log_start_offset)
        if offset > end:
            return _NO_COPIES, end
        data = await self._read(partition, offset)
        if not data:
            return _NO_COPIES, end
        _, wanted = split_at(undeliverable, offset - 1)
        copies, last = await self._workers.in_thread(lambda: _decoded(data, wanted))
        return copies, max(offset, min(last, end))

    async def _read(self, partition: Partition, offset: int) -> bytes:
        def find() -> FileRange | None:
            upper = partition.log.high_watermark
            return partition.log.read(offset, _READ_BYTES, upper=upper, at_least_one=True, cached_only=True)

        found = None
        try:
            found = await retry_when_cached(partition, self._workers, find)
            # In a thread: an encrypted file with small batches takes 50 ms.
            return b"" if found is None else bytes(await self._workers.in_thread(found.read))
        except OSError as e:
            raise partition.read_failed(e, found) from e


def _decoded(data: bytes, undeliverable: Sequence[Undeliverable]) -> tuple[dict[int, Record], int]:
    """The undeliverable records of as many batches as fit, and the last offset of these batches."""
    wanted = {offset for each in undeliverable for offset in range(each.first, each.last + 1)}
    found: dict[int, Record] = {}
    size, last = 0, -1
    for position, header in iter_batches(data):
        if size >= _READ_BYTES:
            break
        last = header.last_offset
        if header.is_control or wanted.isdisjoint(range(header.base_offset, last + 1)):
            continue
        for record in iter_records(data[position : position + header.size]):
            if record.offset in wanted:
                found[record.offset] = record
                size += len(record.key or b"") + len(record.value or b"")
    return found, last
