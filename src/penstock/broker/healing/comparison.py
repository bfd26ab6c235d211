"""Finds bytes of a replica that differ from the other replicas although every checksum is valid.

A follower compares with its leader, a leader with its first in-sync follower. Both read the other replica by
Fetch, like a consumer: Kafka has no API that returns digests. Only sealed segments below the high watermark
are compared, piece by piece. If bytes differ, all in-sync replicas are read, and the digests of their batches
determine which replicas are corrupt (`replication.digest`). Each broker repairs only its own replica.

Compacted topics are skipped: each replica compacts its log on its own, so healthy replicas differ.

Invariants: bytes are replaced only after a verdict, and only by bytes of a replica that the verdict calls
healthy, so a corrupt minority never spreads. Replicas with invalid checksums take no part in the verdict.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.broker.base.logs import get_logger
from penstock.broker.healing.environment import RepairEnvironment
from penstock.broker.healing.repair import (
    PIECE_BYTES,
    others_in_sync,
    read_replica,
    repair_range,
)
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError, CorruptMessage, PenstockError
from penstock.net.peer_errors import PeerGone
from penstock.ports import Buffer, Files
from penstock.records.batch import LOG_OVERHEAD, read_offset_and_length
from penstock.replication.digest import Mismatch, batch_digests, is_untouched, leading_batches, mismatches
from penstock.storage.config import FOREVER
from penstock.storage.recovery_report import Corruption
from penstock.storage.scrub import SealedSegment, describe, note_damage, sealed_segments
from penstock.storage.segment import Segment
from penstock.storage.validation import check_replicated

__all__ = ["compare_replica"]

log = get_logger("scrubber")


class _Piece(NamedTuple):
    """Complete batches of a sealed segment: their position in the file and their range of offsets."""

    position: int
    batches: bytes
    start: int
    end: int


async def compare_replica(env: RepairEnvironment, partition: Partition) -> None:
    """Compare every sealed segment of a replica with another replica, and repair its corrupt ranges."""
    if partition.log.config.compact:
        return
    for segment in sealed_segments(partition.log):
        try:
            await _Comparison(env, partition, segment).run()
        except (PeerGone, FileNotFoundError) as e:
            # The other replica is unreachable, or retention deleted the segment. The next round tries again.
            log.debug("not_compared", partition=partition.name, error=str(e))
            return


class _Comparison:
    """The comparison of one segment."""

    __slots__ = ("_env", "_leader_epoch", "_partition", "_segment")

    def __init__(self, env: RepairEnvironment, partition: Partition, segment: Segment) -> None:
        self._env = env
        self._partition = partition
        self._segment = segment
        self._leader_epoch = partition.leader_epoch

    async def run(self) -> None:
        env, position = self._env, 0
        while True:
            sealed, others = self._sealed(), others_in_sync(env, self._partition)
            if sealed is None or not others or position >= sealed.size:
                return
            piece = await env.workers.in_thread(_read_piece, env.files, sealed, position)
            if piece is None:
                return
            position += len(piece.batches)
            # The factor 2: the disks of both brokers are read.
            await asyncio.sleep(2 * len(piece.batches) / env.config.penstock_scrub_bytes_per_second)
            try:
                theirs = await self._read(piece, others[0])
            except ApiError as e:
                log.debug("not_compared", partition=self._partition.name, replica=others[0], error=str(e))
                continue
            if theirs != piece.batches:
                await self._decide(sealed, piece, {others[0]: theirs}, others[1:])

    def _sealed(self) -> SealedSegment | None:
        """The segment, or None if it is no longer comparable.

        It is comparable if it is committed and not compacted, and the leader epoch has not changed.
        """
        partition = self._partition
        sealed = describe(partition.log, self._segment)
        if (
            sealed is None
            or not partition.is_online
            or partition.leader_epoch != self._leader_epoch
            or sealed.gaps_allowed
            or sealed.end_offset > partition.log.high_watermark
        ):
            return None
        return sealed

    async def _read(self, piece: _Piece, replica: int) -> bytearray:
        """The batches of another replica with the same offsets as `piece`."""
        batches, offset = bytearray(), piece.start
        while offset < piece.end:
            fetched = await read_replica(self._env, self._partition, offset, replica)
            size, next_offset = leading_batches(fetched, piece.end)
            # No checksum covers the offsets of a batch. They must rise, and the batches must not be endless.
            if not size or next_offset <= offset or len(batches) > len(piece.batches) + PIECE_BYTES:
                raise CorruptMessage(f"replica {replica} has no batch at offset {offset}")
            batches += fetched[:size]
            offset = next_offset
        return batches

    async def _decide(
        self, sealed: SealedSegment, piece: _Piece, read: dict[int, bytearray], others: list[int]
    ) -> None:
        """Read the piece from the remaining replicas, and repair this one where it is corrupt."""
        env, partition = self._env, self._partition
        for replica in others:
            try:
                read[replica] = await self._read(piece, replica)
            except PenstockError as e:
                log.debug("not_compared", partition=partition.name, replica=replica, error=str(e))
        held = {
            replica: batch_digests(memoryview(batches))
            for replica, batches in read.items()
            if _is_sound(batches) and is_untouched(memoryview(batches), piece.start, piece.end)
        }
        if _is_sound(piece.batches):
            held[env.node_id] = batch_digests(memoryview(piece.batches))
        if self._sealed() != sealed:
            return
        known = env.image.topics_by_id[partition.topic_id].partitions[partition.index]
        for mismatch in mismatches(known.replicas, known.leader, held, piece.end):
            if self._sealed() != sealed:
                return
            self._report(mismatch)
            damage = _damage(sealed, piece, mismatch)
            if env.node_id in mismatch.corrupt and damage.size:
                note_damage(partition.log, self._segment, damage)
                await repair_range(env, partition, damage, sorted(mismatch.healthy))

    def _report(self, mismatch: Mismatch) -> None:
        self._env.metrics.differences_found += 1
        log.error(
            "replicas_differ",
            partition=self._partition.name,
            first_offset=mismatch.start,
            next_offset=mismatch.end,
            healthy=sorted(mismatch.healthy),
            corrupt=sorted(mismatch.corrupt),
        )


def _is_sound(batches: Buffer) -> bool:
    """Whether all checksums are valid. If not, the scrubber of the broker that holds the copy repairs it."""
    try:
        check_replicated(batches)
    except PenstockError:
        return False
    return True


def _read_piece(files: Files, sealed: SealedSegment, position: int) -> _Piece | None:
    """Complete batches from `position` on, at least one; None if the file has none. Reads the disk."""
    file = files.open(sealed.path)
    data = memoryview(file.pread(min(PIECE_BYTES, sealed.size - position), position))
    size, next_offset = leading_batches(data, FOREVER)
    if not size and len(data) > LOG_OVERHEAD:
        data = memoryview(file.pread(read_offset_and_length(data)[1], position))
        size, next_offset = leading_batches(data, FOREVER)
    if not size:
        return None
    return _Piece(position, bytes(data[:size]), read_offset_and_length(data)[0], next_offset)


def _damage(sealed: SealedSegment, piece: _Piece, mismatch: Mismatch) -> Corruption:
    """The position of a mismatch in the file of this replica's segment."""
    batches = memoryview(piece.batches)
    first, _ = leading_batches(batches, mismatch.start)
    behind, _ = leading_batches(batches, mismatch.end)
    return Corruption(sealed.path, piece.position + first, behind - first, mismatch.start, mismatch.end)
