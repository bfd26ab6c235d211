"""Snapshots: the state that replaces the records below the log's start (KIP-630).

A snapshot ends at or below the high watermark, so a follower that installs one gets committed records only. A
fetch below the log's start is answered with the snapshot's id, and the follower fetches it in chunks.
"""

from __future__ import annotations

from collections.abc import Hashable

from penstock.model.errors import CorruptMessage, ErrorCode
from penstock.raft.follower_replication import FollowerReplication
from penstock.raft.leader import Leader
from penstock.raft.leader_replication import LeaderReplication
from penstock.raft.messages import FetchSnapshotRequest, FetchSnapshotResponse, LogPoint
from penstock.raft.quorum import Quorum
from penstock.raft.ready import QuorumViolation
from penstock.raft.roles import Follower

__all__ = ["SnapshotTransfer"]


class SnapshotTransfer:
    """Sends snapshots as a leader and installs them as a follower."""

    __slots__ = ("_following", "_leading", "_quorum")

    def __init__(self, quorum: Quorum, leading: LeaderReplication, following: FollowerReplication) -> None:
        self._quorum = quorum
        self._leading = leading
        self._following = following

    def taken(self, snapshot: LogPoint) -> None:
        """The driver has a snapshot on the disk; records below its end may be deleted.

        The snapshot names `history.at(snapshot.offset)` as the voters (`control.voters_batch`).
        """
        quorum = self._quorum
        if snapshot.offset > quorum.high_watermark:
            raise QuorumViolation(
                f"{snapshot} is not committed: the high watermark is {quorum.high_watermark}"
            )
        quorum.log.delete_before(snapshot.offset)
        quorum.history.start_at(snapshot.offset)

    def on_fetch_snapshot(self, token: Hashable, request: FetchSnapshotRequest) -> None:
        quorum = self._quorum
        error = self._leading.refusal(request.epoch)
        found = None
        if error == ErrorCode.NONE:
            assert isinstance(quorum.role, Leader)
            if request.replica.is_replica:
                replica = quorum.role.replica(request.replica, quorum.voters, quorum.now_ms)
                replica.contact_ms = quorum.now_ms
            found = quorum.log.read_snapshot(request.snapshot, request.position, request.max_bytes)
            if found is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < found[0]:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        size, chunk = found if found is not None and error == ErrorCode.NONE else (0, b"")
        quorum.outbox.reply(
            token,
            FetchSnapshotResponse(
                error, quorum.epoch, quorum.leader_id, request.snapshot, size, request.position, chunk
            ),
        )

    def on_fetch_snapshot_response(
        self, peer: int, request: FetchSnapshotRequest, response: FetchSnapshotResponse
    ) -> None:
        quorum = self._quorum
        if request is not quorum.pending_fetch:
            return
        quorum.pending_fetch = None
        quorum.next_fetch_ms = quorum.now_ms + quorum.config.retry_ms
        quorum.observe(response.epoch, response.leader_id)
        if not self._following.is_from_leader(peer, request.epoch, response.epoch):
            return
        assert isinstance(quorum.role, Follower)
        if response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._following.leader_left(quorum.backoff())
        elif response.error == ErrorCode.NONE and response.snapshot == quorum.role.snapshot:
            self._take_chunk(quorum.role, response)
            self._following.leader_answered()
        else:
            # The leader has a newer snapshot: its next answer to a fetch names it.
            quorum.role.snapshot = None
            self._following.leader_answered()

    def _take_chunk(self, role: Follower, response: FetchSnapshotResponse) -> None:
        snapshot = response.snapshot
        if response.position != role.snapshot_bytes:
            role.snapshot = None
            return
        self._quorum.log.write_snapshot(snapshot, response.position, response.chunk)
        role.snapshot_bytes += len(response.chunk)
        if role.snapshot_bytes >= response.size:
            role.snapshot = None
            self._install(snapshot)

    def _install(self, snapshot: LogPoint) -> None:
        quorum = self._quorum
        if snapshot.offset < quorum.high_watermark:
            raise QuorumViolation(
                f"{snapshot} lacks committed records: the high watermark is {quorum.high_watermark}"
            )
        try:
            voters = quorum.log.install_snapshot(snapshot)
        except CorruptMessage:
            return  # damaged on the way: fetched again
        quorum.history.reset(snapshot.offset, voters)
        quorum.flushed_offset = quorum.log.end_offset
        self._following.learn_high_watermark(snapshot.offset)
        quorum.outbox.installed = snapshot
