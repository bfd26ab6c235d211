"""Snapshots: what stands for the records that the log no longer has (KIP-630).

A snapshot ends at or below the high watermark, so whoever installs one takes committed records only. A
follower that is behind the log's start is told the snapshot's name by Fetch, and fetches it in chunks.
"""

from __future__ import annotations

from collections.abc import Hashable

from penstock.model.errors import CorruptMessage, ErrorCode
from penstock.raft.leader import Leader
from penstock.raft.messages import FetchRequest, FetchSnapshotRequest, FetchSnapshotResponse, LogPoint
from penstock.raft.ready import QuorumViolation
from penstock.raft.replication import Replication
from penstock.raft.roles import Follower

__all__ = ["Snapshots"]


class Snapshots(Replication):
    """Replication with a log that does not start at 0."""

    __slots__ = ()

    def snapshot_taken(self, snapshot: LogPoint) -> None:
        """The driver has made a snapshot, durably; records below its end may go.

        It has to name `history.at(snapshot.offset)` as the voters (`control.voters_batch`).
        """
        if snapshot.offset > self.high_watermark:
            raise QuorumViolation(f"{snapshot} is not committed, {self.high_watermark} is")
        self.log.delete_before(snapshot.offset)
        self.history.start_at(snapshot.offset)

    def _on_fetch_snapshot(self, token: Hashable, request: FetchSnapshotRequest) -> None:
        error = self._refusal_as_leader(request.epoch)
        found = None
        if error == ErrorCode.NONE:
            assert isinstance(self.role, Leader)
            self.role.replica(request.replica, self.voters, self._now_ms).contact_ms = self._now_ms
            found = self.log.read_snapshot(request.snapshot, request.position, request.max_bytes)
            if found is None:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < found[0]:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        size, chunk = found if found is not None and error == ErrorCode.NONE else (0, b"")
        self._reply(
            token,
            FetchSnapshotResponse(
                error, self.epoch, self.leader_id, request.snapshot, size, request.position, chunk
            ),
        )

    def _on_fetch_snapshot_response(
        self, peer: int, request: FetchSnapshotRequest, response: FetchSnapshotResponse
    ) -> None:
        if request is not self._fetch:
            return
        self._fetch = None
        self._fetch_ms = self._now_ms + self.config.retry_ms
        self._observe(response.epoch, response.leader_id)
        if not self._is_from_leader(peer, request.epoch, response.epoch):
            return
        assert isinstance(self.role, Follower)
        if response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._leader_left(self._backoff())
        elif response.error == ErrorCode.NONE and response.snapshot == self.role.snapshot:
            self._take_chunk(self.role, response)
            self._leader_answered()
        else:
            # The leader has a newer one by now: its next answer to a fetch names it.
            self.role.snapshot = None
            self._leader_answered()

    def _take_chunk(self, role: Follower, response: FetchSnapshotResponse) -> None:
        snapshot = response.snapshot
        if response.position != role.snapshot_bytes:
            role.snapshot = None
            return
        self.log.write_snapshot(snapshot, response.position, response.chunk)
        role.snapshot_bytes += len(response.chunk)
        if role.snapshot_bytes >= response.size:
            role.snapshot = None
            self._install(snapshot)

    def _install(self, snapshot: LogPoint) -> None:
        if snapshot.offset < self.high_watermark:
            raise QuorumViolation(f"{snapshot} lacks committed records: {self.high_watermark} is committed")
        try:
            voters = self.log.install_snapshot(snapshot)
        except CorruptMessage:
            return  # damaged on the way: asked for again
        self.history.reset(snapshot.offset, voters)
        self.flushed_offset = self.log.end_offset
        self._learn_high_watermark(snapshot.offset)
        self._installed = snapshot

    def _next_fetch(self, following: bool) -> FetchRequest | FetchSnapshotRequest:
        role = self.role
        if following and isinstance(role, Follower) and role.snapshot is not None:
            return FetchSnapshotRequest(
                self._fetch_key, self.epoch, role.snapshot, role.snapshot_bytes, self.config.fetch_max_bytes
            )
        return super()._next_fetch(following)
