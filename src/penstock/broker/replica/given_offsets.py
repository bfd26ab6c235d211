"""Appends batches to a partition at the offsets that they have, as its leader: of a restore, or of a link.

The batches get the leader epoch of this broker, which no checksum covers. Their checksums are verified.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.replica.partition import Partition
from penstock.broker.replica.waiting_readers import A_LOT
from penstock.model.errors import CorruptMessage, InvalidRequest
from penstock.records.batch import HEADER_SIZE, BatchHeader, read_header, stamp

__all__ = ["BATCHES_MAX", "BYTES_MAX", "append_at_offsets", "check_and_stamp", "start_empty_log"]

#: limits of one call, which appends without a pause; a single batch may be larger
BYTES_MAX: Final = 4 << 20
BATCHES_MAX: Final = 1000


def start_empty_log(partition: Partition, offset: int) -> None:
    """Have a log without records start at `offset`; fetches that wait at the old end are answered."""
    log, leadership = partition.log, partition.leadership
    log.reset_to(offset)
    log.start_at(offset)
    if leadership is not None:
        leadership.became_durable(partition.sync.end_offset)
    for follower in partition.followers:
        follower.grew(A_LOT)


def check_and_stamp(batches: memoryview, next_offset: int, leader_epoch: int) -> BatchHeader | None:
    """Give the batches the leader epoch, and check that they may follow `next_offset` in this order.

    Returns the header of the last one.
    """
    position = count = 0
    header = None
    while position < len(batches):
        if len(batches) - position < HEADER_SIZE:
            raise CorruptMessage(f"{len(batches) - position} bytes are not a batch")
        header = read_header(batches, position)
        if header.size < HEADER_SIZE or position + header.size > len(batches):
            raise CorruptMessage(f"a batch of {header.size} bytes in {len(batches) - position}")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptMessage(f"a batch at offset {header.base_offset} cannot follow {next_offset - 1}")
        stamp(batches, position, header.base_offset, leader_epoch)
        next_offset = header.next_offset
        position += header.size
        count += 1
        if count > BATCHES_MAX or (count > 1 and position > BYTES_MAX):
            raise InvalidRequest(f"more than {BATCHES_MAX} batches or {BYTES_MAX} bytes at once")
    return header


def append_at_offsets(partition: Partition, batches: memoryview) -> None:
    """Append checked batches, as after the append of a client."""
    if partition.health.full is not None:
        partition.log.check_room()
    partition.log.appender.append_replicated(batches)
    partition.sync.appended()
    if partition.leadership is not None:
        partition.leadership.appended(len(batches))
    elif partition.sync.flusher.acks_wait:
        partition.sync.hidden_bytes += len(batches)
    else:
        partition.log.advance_high_watermark(partition.log.end_offset)
        partition.readers.wake(len(batches))
