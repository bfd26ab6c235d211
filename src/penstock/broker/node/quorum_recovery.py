"""Recovers a lost metadata quorum on stopped nodes: `penstock quorum recover` and `penstock quorum rejoin`.

`recover` merges the metadata of all voters (`metadata_merge`) and makes it the metadata of the cluster, with
one node as the only voter. It refuses to begin with less than the voters have together. `rejoin` removes the
metadata of another node, which then fetches it from the recovered quorum and becomes a voter again. Both
commands back up the files that they change. They change only the metadata log, its quorum state and its
lines in the checkpoints. The partitions stay as the last shutdown left them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.broker.node.metadata_check import metadata_path, snapshot_name
from penstock.broker.node.metadata_copies import Copy, Piece, copies_of, read_copy
from penstock.broker.node.metadata_log import QUORUM_STATE, MetadataLog
from penstock.broker.node.metadata_merge import CopiesDiverge, Merged, merge
from penstock.model.errors import PenstockError
from penstock.model.ids import METADATA_TOPIC, TopicPartition
from penstock.ports import Clock, File, Files, Rng
from penstock.raft.control import leader_change_batch, voters_batch
from penstock.raft.messages import ReplicaKey, Voter
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
from penstock.storage.manifest import CLEAN_SHUTDOWN, Manifest, ManifestRefused
from penstock.storage.offset_checkpoints import OffsetCheckpoints
from penstock.storage.ownership import node_of
from penstock.storage.recorded_offsets import recorded_high_watermark, recorded_offsets
from penstock.storage.segment_files import LOG

__all__ = ["Outcome", "RecoveryRefused", "Source", "recover", "rejoin"]

_BACKUP: Final = "metadata-backup"
_STAGING: Final = "metadata-recovering"
_SEGMENT_BYTES: Final = 256 << 20


class RecoveryRefused(PenstockError):
    """A data directory that the quorum cannot be recovered from; the message contains the reason."""


class Outcome(NamedTuple):
    """The result of a command."""

    node_id: int
    backup: str
    #: the new epoch of the quorum
    epoch: int = 0
    end_offset: int = 0
    #: what each copy of the metadata has, and what was taken from where
    report: Sequence[str] = ()
    #: the offsets that no copy has, in a dry run
    missing: tuple[int, int] | None = None


class Source(NamedTuple):
    """The data directories of another stopped voter; with `node_id`, a folder of its metadata files."""

    files: Files
    directories: Sequence[str]
    node_id: int | None = None


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
        self.directories = list(data_dirs)
        #: the place of a new log until it is complete
        self.staging = f"{self.directory}/{_STAGING}"

    def close(self) -> None:
        self._lock.close()

    def _backups(self) -> int:
        number = 0
        while self.files.exists(f"{self.directory}/{_BACKUP}-{number + 1}"):
            number += 1
        return number

    def last_backup(self) -> str:
        return f"{self.directory}/{_BACKUP}-{self._backups()}"

    def back_up(self) -> str:
        """Copy the metadata log's directory; the copy is durable on return."""
        files = self.files
        backup = f"{self.directory}/{_BACKUP}-{self._backups() + 1}"
        files.makedirs(backup)
        for name in files.listdir(self.path):
            if not files.is_dir(f"{self.path}/{name}"):
                files.write_atomic(f"{backup}/{name}", files.read(f"{self.path}/{name}"))
        files.sync_dir(backup)
        files.sync_dir(self.directory)
        return backup

    def copies(self) -> list[Copy]:
        """The copies of the metadata log: the log itself with what the node knows of it, and earlier ones."""
        copies = copies_of(self.files, self.id, self.directories)
        for copy in copies:
            if copy.path == self.path:
                copy.committed = max(
                    recorded_high_watermark(self.files, self.path), self.last_state().recover_to
                )
                copy.durable = max(recorded_offsets(self.files, self.path)[1], self._closed_end())
        return copies

    def _closed_end(self) -> int:
        """The end of the log at the last clean shutdown; 0 if there was none."""
        with suppress(FileNotFoundError, ManifestRefused):
            content = Manifest.decode(self.files.read(f"{self.directory}/{CLEAN_SHUTDOWN}"))
            closed = content.logs.get(TopicPartition(METADATA_TOPIC, 0))
            return 0 if closed is None else closed.end_offset
        return 0

    def forget_offsets(self) -> None:
        """Remove the metadata log from the checkpoints and the manifest, which describe the old log."""
        manifest = f"{self.directory}/{CLEAN_SHUTDOWN}"
        with suppress(FileNotFoundError, ManifestRefused):
            content = Manifest.decode(self.files.read(manifest))
            content.logs.pop(TopicPartition(METADATA_TOPIC, 0), None)
            self.files.write_atomic(manifest, content.encode())
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


def plan(node: _Node, others: Sequence[Source], without: Collection[int]) -> tuple[Merged, list[Copy]]:
    """The metadata that the voters have together, and its copies; RecoveryRefused if one may have more."""
    copies = node.copies()
    for source in others:
        copies += _copies(source)
    used = [copy for copy in copies if copy.node_id == node.id or copy.node_id not in without]
    try:
        merged = merge(used)
    except CopiesDiverge as e:
        raise RecoveryRefused(
            f"{e}: the voters have gone on with different metadata. Choose, and leave the others out with "
            f"--without NODE"
        ) from e
    seen = {copy.node_id for copy in copies} | set(without)
    if unseen := sorted(merged.voter_ids() - seen):
        names, options = ", ".join(map(str, unseen)), " ".join(f"--without {each}" for each in unseen)
        raise RecoveryRefused(
            f"the voters {names} may have metadata that node {node.id} lacks: name their data directories "
            f"with --with DIR, or recover without them ({options}) if their disks are lost"
        )
    return merged, copies


def _copies(source: Source) -> list[Copy]:
    """The copies of another stopped voter, whose directories are locked while they are read."""
    files = source.files
    if source.node_id is not None:
        return [read_copy(files, source.node_id, each) for each in source.directories]
    other = _Node(files, source.directories)
    try:
        return other.copies()
    finally:
        other.close()


def recover(
    files: Files,
    data_dirs: Sequence[str],
    clock: Clock,
    rng: Rng,
    *,
    others: Sequence[Source] = (),
    without: Collection[int] = (),
    up_to: int | None = None,
    dry_run: bool = False,
) -> Outcome:
    """Make the metadata that the voters have together the cluster's, with this node as the only voter.

    `others` are the data of other voters, `without` voters whose data is lost, or not to be used. If offsets
    are missing, `up_to` has to be the first of them: everything from there on is dropped.
    """
    node = _Node(files, data_dirs)
    try:
        if not dry_run and _is_staged(node):
            return _finish(node, node.last_backup(), [])
        merged, copies = plan(node, others, without)
        report = _report(merged, copies)
        if dry_run:
            return Outcome(node.id, "", merged.last_epoch + 1, merged.end_offset, report, merged.missing)
        _check_complete(merged, up_to, report)
        backup = node.back_up()
        _stage(node, merged, clock, rng)
        return _finish(node, backup, report)
    finally:
        node.close()


def _report(merged: Merged, copies: Sequence[Copy]) -> list[str]:
    """What each copy has, which batches were taken from which copy, and what is missing."""
    lines = []
    for copy in copies:
        offsets = list(copy.pieces)
        snapshots = ", ".join(f"snapshot of offset {point.offset}" for point in sorted(copy.snapshots))
        logged = f"offsets {offsets[0]} to {copy.end.offset - 1}" if offsets else "no offsets"
        lines.append(
            f"node {copy.node_id}: {logged}, epoch {copy.end.epoch}"
            f"{f', {snapshots}' if snapshots else ''} ({copy.path})"
        )
        lines += [f"  {each}" for each in copy.damage]
    lines += [
        f"offset {offset} is taken from node {copy.node_id} ({copy.path})" for offset, copy in merged.filled
    ]
    if merged.missing is not None:
        first, end = merged.missing
        lines.append(
            f"no copy has offsets {first} to {end - 1}; there were offsets up to {merged.known_end - 1}"
        )
    return lines


def _check_complete(merged: Merged, up_to: int | None, report: list[str]) -> None:
    if merged.snapshot is None and not merged.pieces:
        raise RecoveryRefused("; ".join(["there is no intact metadata in these directories", *report]))
    if merged.missing is None and up_to in (None, merged.end_offset):
        return
    if merged.missing is None or up_to != merged.missing[0]:
        first = merged.end_offset
        wanted = "" if up_to is None else f", not --up-to {up_to}"
        reason = report[-1] if merged.missing else f"the metadata is complete up to offset {first - 1}"
        raise RecoveryRefused(
            f"{reason}. To drop everything from offset {first} on, say --up-to {first}{wanted}: topics that "
            f"were created later are then moved to the quarantine"
        )


def _stage(node: _Node, merged: Merged, clock: Clock, rng: Rng) -> None:
    """Write the new log beside the old one; its quorum state comes last, and shows that it is complete."""
    files, path = node.files, node.staging
    if files.is_dir(path):
        files.rmtree(path)
    files.makedirs(path)
    if merged.snapshot is not None:
        files.write_atomic(f"{path}/{snapshot_name(merged.snapshot)}", merged.snapshot_data)
    for base, data in _segments(merged.pieces):
        files.write_atomic(f"{path}/{base:020d}{LOG}", data)
    start = 0 if merged.snapshot is None else merged.snapshot.offset
    log = Log.open(files, path, LogConfig(retention_ms=-1), clock, clean=False, log_start_offset=start)
    state = _start_epoch(node, MetadataLog(log, files, clock), clock, rng)
    log.close(clean=True)
    files.write_atomic(f"{path}/{QUORUM_STATE}", encode_quorum_state(state))
    files.sync_dir(path)
    files.sync_dir(node.directory)


def _segments(pieces: Sequence[Piece]) -> Iterator[tuple[int, bytes]]:
    """The base offsets and the content of segments."""
    parts: list[Piece] = []
    size = 0
    for piece in pieces:
        if parts and size + len(piece.data) > _SEGMENT_BYTES:
            yield parts[0].offset, b"".join(each.data for each in parts)
            parts, size = [], 0
        parts.append(piece)
        size += len(piece.data)
    if parts:
        yield parts[0].offset, b"".join(each.data for each in parts)


def _is_staged(node: _Node) -> bool:
    """Whether an earlier command was interrupted while it put the new log into place."""
    return node.files.exists(f"{node.staging}/{QUORUM_STATE}")


def _finish(node: _Node, backup: str, report: list[str]) -> Outcome:
    """Put the staged log into the place of the old one. After a crash, the next command continues here."""
    files, path = node.files, node.path
    state = decode_quorum_state(files.read(f"{node.staging}/{QUORUM_STATE}"))
    # With this mark the node cannot vote with a part of the log.
    node.save(QuorumState(recovery=Recovery.REJOINING, directory_id=state.directory_id))
    node.forget_offsets()
    names = [name for name in files.listdir(node.staging) if name != QUORUM_STATE]
    for name in files.listdir(path):
        if name != QUORUM_STATE and not files.is_dir(f"{path}/{name}"):
            files.remove(f"{path}/{name}")
    for name in names:
        files.write_atomic(f"{path}/{name}", files.read(f"{node.staging}/{name}"))
    files.sync_dir(path)
    node.save(state)
    files.rmtree(node.staging)
    files.sync_dir(node.directory)
    return Outcome(node.id, backup, state.epoch, read_copy(files, node.id, path).end.offset, report)


def _start_epoch(node: _Node, metadata: MetadataLog, clock: Clock, rng: Rng) -> QuorumState:
    """Append a new epoch with this node as the only voter; returns the quorum state of the epoch."""
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
    return QuorumState(epoch, directory_id=key.directory_id)
