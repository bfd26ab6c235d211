"""A coordinator's records in its partition's log: reading all of them, and appending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import Metrics
from penstock.broker.healing.repair import Outcome
from penstock.broker.replica.partition import Partition
from penstock.model.errors import CorruptMessage
from penstock.ports import Workers
from penstock.records.batch import HEADER_SIZE, BatchHeader, crc_matches
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.storage.producers import AppendOrigin
from penstock.storage.scan import CorruptLog

__all__ = ["Loader", "append_records"]

log = get_logger("coordinator")
_READ_BYTES: Final = 1 << 20
#: more than a record costs beside its key and value: lengths, offset and timestamp
_RECORD_OVERHEAD: Final = 64


def append_records(partition: Partition, records: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> None:
    """Append `records` in as few batches as max.message.bytes allows; all of them or none."""
    batches = bytearray()
    limit = partition.log.config.max_message_bytes
    start = size = 0
    for index, (key, value) in enumerate(records):
        more = len(key) + len(value or b"") + _RECORD_OVERHEAD
        if index > start and HEADER_SIZE + size + more > limit:
            batches += _batch(records[start:index], now_ms)
            start, size = index, 0
        size += more
    batches += _batch(records[start:], now_ms)
    if partition.leadership is not None:
        # Nobody is answered before enough replicas have it: what cannot be committed is not decided.
        partition.leadership.check_enough_replicas()
    partition.append(memoryview(batches), AppendOrigin.COORDINATOR)


def _batch(records: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> bytes:
    return build_batch([Record(i, now_ms, key, value) for i, (key, value) in enumerate(records)])


class Replayable(Protocol):
    """What a log is the state of."""

    def replay(self, key: bytes, value: bytes | None) -> None: ...


R = TypeVar("R", bound=Replayable)


class Loader:
    """Makes what a log holds.

    A log that is damaged is mended first, from another replica. While one that may have what is damaged is
    away, nothing is loaded: what members have committed must not be forgotten for an outage. Where nobody has
    it (there is one replica, or all are damaged there), what is sound is loaded.
    """

    __slots__ = ("_mend", "_metrics", "_workers")

    def __init__(
        self,
        workers: Workers,
        metrics: Metrics,
        mend: Callable[[Partition], Awaitable[Outcome | None]],
    ) -> None:
        self._workers = workers
        self._metrics = metrics
        self._mend = mend

    async def load(self, partition: Partition, make: Callable[[], R]) -> R | None:
        """A new one with everything that the log holds now; None while it may yet be mended."""
        made = await self._replayed(partition, make)
        if made is None and await self._mend(partition) in (Outcome.MENDED, Outcome.LOST):
            made = await self._replayed(partition, make, give_up=True)
        return made

    async def _replayed(
        self, partition: Partition, make: Callable[[], R], *, give_up: bool = False
    ) -> R | None:
        """None if the log is damaged; what is known to be is left out, if it is to be given up."""
        made = make()
        try:
            await self._replay(partition, made, give_up)
        except (CorruptLog, CorruptMessage) as e:
            log.error("coordinator_log_damaged", partition=partition.name, error=str(e))
            return None
        return made

    async def _replay(self, partition: Partition, made: Replayable, give_up: bool) -> None:
        """Replay the log, a piece at a time."""
        opened = partition.log
        offset, end = opened.log_start_offset, opened.end_offset
        while (offset := self._sound_from(partition, offset) if give_up else offset) < end:
            found = opened.read(offset, _READ_BYTES, upper=end)
            if found is None:
                # Compaction has left nothing of the rest.
                return
            data = memoryview(await self._workers.in_thread(found.read))
            offset = _replay_batches(data, offset, end, made)
            await asyncio.sleep(0)

    def _sound_from(self, partition: Partition, offset: int) -> int:
        """`offset`, or the first sound one behind it where it is damaged and nobody has it."""
        for damage in partition.log.recovery.corruption:
            if damage.first_offset <= offset < damage.next_offset:
                self._metrics.coordinator_ranges_lost += 1
                log.error(
                    "coordinator_records_lost",
                    partition=partition.name,
                    first_offset=offset,
                    next_offset=damage.next_offset,
                    path=damage.path,
                )
                offset = damage.next_offset
        return offset


def _replay_batches(data: memoryview, offset: int, end: int, made: Replayable) -> int:
    """Replay whole batches from `offset` to before `end`; where the next one is."""
    start = offset
    for position, header in iter_batches(data):
        batch = data[position : position + header.size]
        # What says how far a batch goes is in no checksum: it must go on, and come to an end.
        if not offset < header.next_offset <= end or not crc_matches(batch, header):
            raise CorruptLog(f"no sound batch at offset {offset}")
        _replay_batch(batch, header, made.replay)
        offset = header.next_offset
    if offset == start:
        raise CorruptLog(f"no whole batch at offset {offset}")
    return offset


def _replay_batch(
    batch: memoryview, header: BatchHeader, replay: Callable[[bytes, bytes | None], None]
) -> None:
    if header.is_control:
        return
    for record in iter_records(batch):
        if record.key is not None:
            replay(record.key, record.value)
