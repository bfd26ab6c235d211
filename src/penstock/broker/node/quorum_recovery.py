"""Recovers a lost metadata quorum on stopped nodes: `penstock quorum recover` and `penstock quorum rejoin`.

`recover` makes the undamaged part of one node's metadata the metadata of the cluster, with that node as the
only voter. `rejoin` removes the metadata of another node, which then fetches it from the recovered quorum and
becomes a voter again. Both commands back up the files that they change. They change only the metadata log,
its quorum state and its lines in the checkpoints. The partitions stay as the last shutdown left them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.broker.node.metadata_check import (
    DamagedMetadata,
    check_snapshot,
    checked_batches,
    metadata_path,
    parse_snapshot_name,
    snapshot_name,
)
from penstock.broker.node.metadata_log import QUORUM_STATE, MetadataLog
from penstock.model.errors import PenstockError
from penstock.model.ids import METADATA_TOPIC, TopicPartition
from penstock.ports import Clock, File, Files, Rng
from penstock.raft.control import leader_change_batch, voters_batch
from penstock.raft.messages import LogPoint, ReplicaKey, Voter
from penstock.raft.state import (
    QuorumState,
    Recovery,
    UnreadableQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from penstock.raft.voters import VoterSet
from penstock.storage.config import LogConfig
from penstock.storage.health import Health
from penstock.storage.log import AppendOrigin, Log
from penstock.storage.offset_checkpoints import OffsetCheckpoints
from penstock.storage.ownership import node_of
from penstock.storage.segment_files import LOG

__all__ = ["Outcome", "RecoveryRefused", "recover", "rejoin"]

_BACKUP: Final = "metadata-backup"


class RecoveryRefused(PenstockError):
    """A data directory that the quorum cannot be recovered from; the message contains the reason."""


class Outcome(NamedTuple):
    """The result of a command."""

    node_id: int
    backup: str
    #: the new epoch of the quorum
    epoch: int = 0
    end_offset: int = 0
    #: the first damage that was found: it is removed with all records after it
    damage: str | None = None


class _Node:
    """The metadata of a stopped node, whose data directory is locked until `close`."""

    def __init__(self, files: Files, data_dirs: Sequence[str]) -> None:
        path = metadata_path(files, data_dirs)
        if path is None:
            raise RecoveryRefused(
                f"{' and '.join(data_dirs)}: there is no metadata log (topics/{METADATA_TOPIC})"
            )
        self.files = files
        self.path = path
        self.directory = path.rpartition("/topics/")[0]
        try:
            self._lock: File = files.lock(f"{self.directory}/lock")
        except BlockingIOError as e:
            raise RecoveryRefused(f"{self.directory} is in use: stop its broker first") from e
        self.id = node_of(files, self.directory)

    def close(self) -> None:
        self._lock.close()

    def back_up(self) -> str:
        """Copy the metadata log's directory; the copy is durable on return."""
        files, number = self.files, 1
        while files.exists(f"{self.directory}/{_BACKUP}-{number}"):
            number += 1
        backup = f"{self.directory}/{_BACKUP}-{number}"
        files.makedirs(backup)
        for name in files.listdir(self.path):
            if not files.is_dir(f"{self.path}/{name}"):
                files.write_atomic(f"{backup}/{name}", files.read(f"{self.path}/{name}"))
        files.sync_dir(backup)
        files.sync_dir(self.directory)
        return backup

    def forget_offsets(self) -> None:
        """Remove the metadata log from the checkpoints, whose offsets are those of the old log."""
        checkpoints = OffsetCheckpoints(self.files, self.directory, Health())
        checkpoints.forget([TopicPartition(METADATA_TOPIC, 0)])
        checkpoints.take().write()

    def last_state(self) -> QuorumState:
        """The quorum state; epoch 0 if it is lost."""
        with suppress(FileNotFoundError, UnreadableQuorumState):
            return decode_quorum_state(self.files.read(f"{self.path}/{QUORUM_STATE}"))
        return QuorumState()

    def save(self, state: QuorumState) -> None:
        self.files.write_atomic(f"{self.path}/{QUORUM_STATE}", encode_quorum_state(state))


def rejoin(files: Files, data_dirs: Sequence[str], rng: Rng) -> Outcome:
    """Remove a stopped node's metadata, so that it fetches it again and joins under a new voter key."""
    node = _Node(files, data_dirs)
    try:
        backup = node.back_up()
        # The mark comes first: after a crash here, the node cannot vote with the rest of the log.
        node.save(QuorumState(recovery=Recovery.REJOINING, directory_id=rng.token(16)))
        node.forget_offsets()
        for name in files.listdir(node.path):
            if name != QUORUM_STATE and not files.is_dir(f"{node.path}/{name}"):
                files.remove(f"{node.path}/{name}")
        files.sync_dir(node.path)
        return Outcome(node.id, backup)
    finally:
        node.close()


def recover(files: Files, data_dirs: Sequence[str], clock: Clock, rng: Rng) -> Outcome:
    """Make the undamaged part of a stopped node's metadata the cluster's, with the node as only voter."""
    node = _Node(files, data_dirs)
    try:
        snapshot, damage = _sound_snapshot(files, node.path)
        backup = node.back_up()
        damage = _keep_sound(files, node.path, snapshot) or damage
        node.forget_offsets()
        log = Log.open(
            files,
            node.path,
            LogConfig(retention_ms=-1),
            clock,
            clean=False,
            log_start_offset=0 if snapshot is None else snapshot.offset,
        )
        epoch, state = _start_epoch(node, MetadataLog(log, files, clock), clock, rng)
        log.close(clean=True)
        node.save(state)
        return Outcome(node.id, backup, epoch, log.end_offset, damage)
    finally:
        node.close()


def _sound_snapshot(files: Files, path: str) -> tuple[LogPoint | None, str | None]:
    """The latest valid snapshot, and the damage of a later one; RecoveryRefused if nothing is usable."""
    damage = None
    points = [point for name in files.listdir(path) if (point := parse_snapshot_name(name)) is not None]
    for point in sorted(points, key=lambda each: each.offset, reverse=True):
        name = f"{path}/{snapshot_name(point)}"
        try:
            check_snapshot(files.read(name), point, name)
        except DamagedMetadata as e:
            damage = str(e)
        else:
            return point, damage
    bases = _bases(files, path)
    if damage is not None and (not bases or bases[0] > 0):
        raise RecoveryRefused(f"{damage}, and the log does not reach back to its start: use another voter")
    return None, damage


def _bases(files: Files, path: str) -> list[int]:
    names = [name for name in files.listdir(path) if name.endswith(LOG) and name[: -len(LOG)].isdigit()]
    return sorted(int(name[: -len(LOG)]) for name in names)


def _keep_sound(files: Files, path: str, snapshot: LogPoint | None) -> str | None:
    """Truncate the log before the first damage, which is returned, and remove files derived from the log."""
    kept: dict[str, bytes] = {}
    damage: str | None = None
    end, epoch = -1, -1
    for base in _bases(files, path):
        name = f"{base:020d}{LOG}"
        data, size = files.read(f"{path}/{name}"), 0
        try:
            if end not in (-1, base):
                raise DamagedMetadata(f"{path}/{name}", 0, end, f"the segment starts at offset {base}")
            end = base if end < 0 else end
            for header, batch in checked_batches(data, f"{path}/{name}", 0, end, epoch):
                size += len(batch)
                end, epoch = header.next_offset, header.leader_epoch
            if size < len(data):
                raise DamagedMetadata(f"{path}/{name}", size, end, "the file ends within a batch")
        except DamagedMetadata as e:
            damage = str(e)
        kept[name] = data[:size]
        if damage is not None:
            break
    if snapshot is not None and end < snapshot.offset:
        kept = {}
    keeps = {*kept, QUORUM_STATE, *([snapshot_name(snapshot)] if snapshot is not None else [])}
    for name in files.listdir(path):
        if name in kept:
            files.write_atomic(f"{path}/{name}", kept[name])
        elif name not in keeps and not files.is_dir(f"{path}/{name}"):
            files.remove(f"{path}/{name}")
    files.sync_dir(path)
    return damage


def _start_epoch(node: _Node, metadata: MetadataLog, clock: Clock, rng: Rng) -> tuple[int, QuorumState]:
    """Append a new epoch with this node as the only voter; returns the epoch and its quorum state."""
    epoch = max(node.last_state().epoch, metadata.last_epoch) + 1
    key = ReplicaKey(node.id, rng.token(16))
    voters = VoterSet([Voter(key)])
    is_first = metadata.voters(VoterSet()).latest_offset < 0
    now_ms = clock.now_ms()
    for batch in (
        leader_change_batch(node.id, epoch, voters, [node.id], now_ms),
        voters_batch(voters, now_ms, first=is_first),
    ):
        metadata.log.append(memoryview(batch), epoch, origin=AppendOrigin.RAFT)
    return epoch, QuorumState(epoch, directory_id=key.directory_id)
