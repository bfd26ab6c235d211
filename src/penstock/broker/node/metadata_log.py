"""The metadata log on disk: a log like a partition's, and snapshots that replace its beginning.

The directory contains the segments, `quorum-state` and snapshots (`snapshot_files`). Every read is checked
(`metadata_check`), before records are applied or sent to other nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from penstock.broker.base.logs import get_logger
from penstock.broker.node.metadata_check import DamagedMetadata, checked_batches
from penstock.broker.node.snapshot_files import SnapshotFiles
from penstock.model.errors import CorruptMessage, StorageError
from penstock.ports import Buffer, Clock, FileRange, Files, Rng
from penstock.raft.control import observe_voters, whole_batches
from penstock.raft.messages import NO_DIRECTORY, NO_NODE, LogPoint
from penstock.raft.state import (
    QuorumState,
    Recovery,
    UnreadableQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from penstock.raft.unanimity import state_without_votes
from penstock.raft.voters import VoterHistory, VoterSet
from penstock.records.batch import HEADER_SIZE, BatchHeader, read_header, stamp_time
from penstock.records.header_fields import BASE_OFFSET, LEADER_EPOCH
from penstock.storage.config import FOREVER, LogConfig
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.log import AppendOrigin, Log
from penstock.storage.removal import Removal

__all__ = ["QUORUM_STATE", "MetadataLog"]

T = TypeVar("T")
log = get_logger("metadata")
QUORUM_STATE: Final = "quorum-state"
_READ_BYTES: Final = 1 << 20
#: a change is one batch, however many partitions it touches
_CONFIG: Final = LogConfig(
    retention_ms=-1, max_message_bytes=256 << 20, message_timestamp_after_max_ms=FOREVER
)


class MetadataLog:
    """Implements `raft.log.RaftLog`. Owned by the event loop's thread.

    Why it has more than 25 methods: most of them are the interface of `RaftLog`.
    """

    def __init__(self, log: Log, files: Files, clock: Clock) -> None:
        log.reconfigure(_CONFIG)
        self.log = log
        self._files = files
        self._clock = clock
        self.snapshots = SnapshotFiles(files, log.path)
        self._read_epochs()
        self.snapshot: LogPoint | None = max(
            self.snapshots.found(), default=None, key=lambda point: point.offset
        )
        if self.snapshot is not None:
            self._continue_from(self.snapshot)

    def _read_epochs(self) -> None:
        """Read the leader epochs from the batches: the file of an earlier release has no checksum."""
        found, known = LeaderEpochs(), self.log.leader_epochs
        for segment in self.log.segments:
            for _, header in segment.scan(0) if segment.size else ():
                if header[LEADER_EPOCH] > found.latest and header[BASE_OFFSET] < self.log.end_offset:
                    found.assign(header[LEADER_EPOCH], header[BASE_OFFSET])
            segment.release()
        if found.epochs and (found.epochs, found.starts[1:]) != (known.epochs, known.starts[1:]):
            log.warning(
                "leader_epochs_replaced", path=self.log.path, found=[*known.epochs], batches=found.epochs
            )
            # In place: the log's parts have the same object, and the next sync writes it.
            known.replace(found)

    def _continue_from(self, snapshot: LogPoint) -> None:
        """Let the log continue `snapshot`; a log that ends before it, or diverges from it, is reset.

        A log that starts at the snapshot's end does not know the epoch before, and is complete.
        """
        parts = self.log.log_start_offset < snapshot.offset and (
            self._epoch_before(snapshot.offset) != snapshot.epoch
        )
        if self.log.end_offset < snapshot.offset or parts:
            self.log.reset_to(snapshot.offset)
        self.log.advance_high_watermark(snapshot.offset)
        self.log.delete_records(snapshot.offset)

    def _epoch_before(self, offset: int) -> int | None:
        return self.log.leader_epochs.epoch_of(offset - 1)

    # -- the log

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def last_epoch(self) -> int:
        if self.log.leader_epochs.latest >= 0:
            return self.log.leader_epochs.latest
        return self.snapshot.epoch if self.snapshot is not None else 0

    @property
    def committed_offset(self) -> int:
        return min(self.log.high_watermark, self.end_offset)

    def end_offset_for_epoch(self, epoch: int) -> LogPoint:
        epochs, starts = self.log.leader_epochs.epochs, self.log.leader_epochs.starts
        following = bisect_right(epochs, epoch)
        if following:
            end = starts[following] if following < len(starts) else self.end_offset
            return LogPoint(epochs[following - 1], end)
        if self.snapshot is not None and self.snapshot.offset == self.start_offset:
            return self.snapshot if self.snapshot.epoch <= epoch else LogPoint(epoch, self.start_offset)
        return LogPoint(0, 0)

    def checksum_before(self, offset: int) -> int:
        if offset <= self.start_offset:
            return -1
        found = self.log.read(offset - 1, HEADER_SIZE, upper=offset)
        header = None if found is None else read_header(found.read_unverified())
        return -2 if header is None or header.next_offset != offset else header.crc

    def append(self, batches: bytearray, epoch: int) -> int:
        view = memoryview(batches)
        if read_header(view).is_control:
            # The Raft core has no wall clock: it stamps control batches with the clock of its timeouts.
            stamp_time(view, self._clock.now_ms())
        return self._retry_if_full(lambda: self.log.append(view, epoch, origin=AppendOrigin.RAFT).base_offset)

    def append_replicated(self, batches: Buffer) -> None:
        # Checksums do not cover offsets. Unlike a compacted topic's log, this log has no gaps.
        expected = self.end_offset
        for header, _ in whole_batches(batches):
            if header.base_offset != expected:
                raise CorruptMessage(f"a batch at offset {header.base_offset} does not follow {expected - 1}")
            expected = header.next_offset
        self._retry_if_full(lambda: self.log.append_replicated(batches))

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset)

    def read(self, offset: int, max_bytes: int) -> Buffer | FileRange:
        found = self.log.read(offset, max_bytes, upper=self.end_offset)
        if found is None:
            return b""
        data = found.read_unverified()
        size = sum(len(batch) for _, batch in self._checked(found, data, offset))
        return memoryview(data)[:size]

    def _checked(
        self, found: FileRange, data: bytes, offset: int
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of a read from `offset`, which may be within the first one."""
        first = read_header(data).base_offset if len(data) >= HEADER_SIZE else offset
        epoch = self.log.leader_epochs.epoch_of(offset)
        return checked_batches(
            data, found.file.path, found.position, first if first <= offset else offset, epoch or 0
        )

    def batches(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """(next offset, bytes) of each batch from `start` to before `end`."""
        while start < end:
            for header, batch in self.read_checked(start, end):
                start = header.next_offset
                yield start, batch

    def read_checked(self, start: int, end: int) -> list[tuple[BatchHeader, memoryview]]:
        """Some batches from `start` to before `end`, at least one; DamagedMetadata if they are damaged."""
        found = self.log.read(start, _READ_BYTES, upper=end)
        assert found is not None
        batches = list(self._checked(found, found.read_unverified(), start))
        if not batches:
            raise DamagedMetadata(found.file.path, found.position, start, "there is no whole batch")
        return batches

    def delete_before(self, offset: int) -> None:
        self.log.advance_high_watermark(offset)
        self.log.delete_records(offset)

    def trim(self) -> list[Removal]:
        """Remove segments below the log start offset; call `delete` of each in a worker thread."""
        return self.log.retention.apply(self._clock.now_ms())

    # -- voters and votes

    def voters(self, static: VoterSet) -> VoterHistory:
        """The voters according to the snapshot and the log, including uncommitted records."""
        history = VoterHistory(static)
        if self.snapshot is not None:
            history.reset(self.snapshot.offset, self.snapshots.voters(self.snapshot))
        for _, batch in self.batches(self.start_offset, self.end_offset):
            observe_voters(history, batch)
        return history

    def load_state(self, node_id: int, voters: VoterSet, rng: Rng) -> QuorumState:
        """The quorum state; UnreadableQuorumState if the node has lost a vote that may count.

        A voter whose votes are lost waits for a leader, or for all other voters (`raft.unanimity`). A node
        that is no voter gets a new key, under which it has neither voted nor acknowledged records. If the
        voter set does not contain the node's directory id yet, a new key would not help.
        """
        voter = voters.get(node_id)
        is_only_voter = len(voters) == 1 and voter is not None
        state, problem = self._read_state(voters, node_id)
        if not problem and state is not None:
            return state
        if is_only_voter:
            # It may append before its vote is on disk: there is no other candidate.
            return (state or QuorumState())._replace(epoch=self.last_epoch, leader_id=NO_NODE, voted=None)
        is_empty = self.end_offset == 0 and not self._files.exists(f"{self.log.path}/{QUORUM_STATE}")
        action = "this node joins the quorum under a new voter key"
        if not is_empty and voter is not None:
            if voter.key.directory_id == NO_DIRECTORY:
                raise UnreadableQuorumState(
                    f"{problem}: let the node join anew with `penstock quorum rejoin`"
                )
            action = "this node votes when all voters are there, or joins a leader under a new voter key"
            state = state_without_votes(state, self.last_epoch, voter.key)
        else:
            recovery = Recovery.NEW if is_empty else Recovery.NONE
            state = QuorumState(self.last_epoch, recovery=recovery, directory_id=rng.token(16))
        if not is_empty:
            log.error("vote_lost", reason=problem, action=action)
        self.save_state(state)
        return state

    def _read_state(self, voters: VoterSet, node_id: int) -> tuple[QuorumState | None, str]:
        """The quorum state on the disk, None if it cannot be read, and the reason why it cannot be used."""
        path = f"{self.log.path}/{QUORUM_STATE}"
        try:
            state = decode_quorum_state(self._files.read(path))
        except FileNotFoundError:
            return None, f"{path} is missing"
        except UnreadableQuorumState as e:
            return None, f"{path} is damaged: {e}"
        owner = next((v.key.id for v in voters if v.key.directory_id == state.directory_id), node_id)
        if state.directory_id != NO_DIRECTORY and owner != node_id:
            return None, f"{path} is that of node {owner}"
        if state.epoch < self.last_epoch:
            return state, f"{path} is of epoch {state.epoch}, the log of {self.last_epoch}"
        return state, ""

    def save_state(self, state: QuorumState) -> None:
        """Write the quorum state durably. Blocks on the disk: to be called in a worker thread."""
        path = f"{self.log.path}/{QUORUM_STATE}"

        def write() -> None:
            try:
                self._files.write_atomic(path, encode_quorum_state(state))
            except OSError as e:
                raise self.log.health.failed(e, f"cannot write {path}") from e

        self._retry_if_full(write)

    def _retry_if_full(self, write: Callable[[], T]) -> T:
        """Call `write`; retries if it was the first to find the disk full: that frees the reserved space."""
        had_room = self.log.health.full is None
        try:
            return write()
        except StorageError:
            if had_room and self.log.health.full is not None:
                return write()
            raise

    # -- snapshots

    def epoch_at(self, end_offset: int) -> int:
        """The epoch of the last record below `end_offset`, which the log or the latest snapshot contains."""
        epoch = self._epoch_before(end_offset)
        if epoch is None:
            assert self.snapshot is not None
            return self.snapshot.epoch
        return epoch

    def keep_snapshot(self, snapshot: LogPoint) -> None:
        """Make this the latest snapshot, and delete older ones."""
        self.snapshot = snapshot
        self.snapshots.remove_before(snapshot)

    def read_snapshot(self, snapshot: LogPoint, position: int, max_bytes: int) -> tuple[int, Buffer] | None:
        return self.snapshots.read(snapshot, position, max_bytes)

    def write_snapshot(self, snapshot: LogPoint, position: int, chunk: Buffer) -> None:
        self.snapshots.write_part(snapshot, position, chunk)

    def install_snapshot(self, snapshot: LogPoint) -> VoterSet | None:
        self.snapshots.complete(snapshot)
        self.log.reset_to(snapshot.offset)
        self.keep_snapshot(snapshot)
        return self.snapshots.voters(snapshot)
