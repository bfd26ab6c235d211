"""Merges copies of the metadata log: every batch from a copy in which it is intact.

The longest copy decides, as in an election: by the epoch of its last batch, then by its end. By Raft it has
everything that is committed. Another copy fills a hole in it only if its batch is the one that was there:

- the damaged batch's header is readable, and has the same offsets, epoch and checksum; or
- both copies have the same batch further on, so that everything before it is the same (log matching); or
- the next batch of the longest copy is of the same epoch: an offset and an epoch name one record.

It does no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.node.metadata_copies import Copy, Piece
from penstock.model.errors import PenstockError
from penstock.raft.control import leader_change_in, observe_voters
from penstock.raft.messages import LogPoint
from penstock.raft.voters import VoterHistory, VoterSet
from penstock.records.batch import read_header

__all__ = ["CopiesDiverge", "Merged", "merge"]


class CopiesDiverge(PenstockError):
    """Two copies have different batches at an offset that one of them knows to be committed."""


class Merged(NamedTuple):
    """The result: a snapshot, if there is one, the batches after it, and what is missing."""

    snapshot: LogPoint | None
    snapshot_data: bytes
    pieces: list[Piece]
    #: the offset of each batch that was taken from another copy than the longest one, and that copy
    filled: list[tuple[int, Copy]]
    #: the offsets that no copy has: everything from the first of them on cannot be used
    missing: tuple[int, int] | None
    #: the end of the longest copy, of what such copies had on disk, and of what is committed
    known_end: int

    @property
    def end_offset(self) -> int:
        if self.pieces:
            return self.pieces[-1].end
        return 0 if self.snapshot is None else self.snapshot.offset

    @property
    def last_epoch(self) -> int:
        if self.pieces:
            return self.pieces[-1].epoch
        return 0 if self.snapshot is None else self.snapshot.epoch

    def voter_ids(self) -> set[int]:
        """The voters according to the last voters record, or to the last leader change."""
        history, changed = VoterHistory(VoterSet()), set[int]()
        observe_voters(history, self.snapshot_data)
        named = {voter.key.id for voter in history.latest}
        history = VoterHistory(VoterSet())
        for piece in self.pieces:
            observe_voters(history, piece.data)
            changed = _leader_change_voters(piece) or changed
        return {voter.key.id for voter in history.latest} or named or changed


def _leader_change_voters(piece: Piece) -> set[int]:
    change = leader_change_in(piece.data) if read_header(piece.data).is_control else None
    return set() if change is None else {voter.voter_id for voter in change.voters}


def merge(copies: Sequence[Copy]) -> Merged:
    """The most that the copies have together; CopiesDiverge if they are not copies of one log."""
    longest = max(copies, key=lambda copy: copy.end)
    _check_common(longest, copies)
    snapshots = {point: data for copy in copies for point, data in copy.snapshots.items()}
    snapshot = max(snapshots, default=None, key=lambda point: point.offset)
    durable = [copy.durable for copy in copies if copy.end.epoch == longest.end.epoch]
    known_end = max([longest.end.offset, *durable, *(copy.committed for copy in copies)])
    pieces: list[Piece] = []
    filled: list[tuple[int, Copy]] = []
    at, epoch = (snapshot.offset, snapshot.epoch) if snapshot is not None else (0, -1)
    while at < longest.end.offset:
        piece = longest.pieces.get(at)
        if piece is None:
            source = next((copy for copy in copies if _may_fill(longest, copy, at, epoch)), None)
            if source is None:
                break
            piece = source.pieces[at]
            filled.append((at, source))
        pieces.append(piece)
        at, epoch = piece.end, piece.epoch
    missing = (at, _next_offset(longest, at, known_end)) if at < known_end else None
    data = b"" if snapshot is None else snapshots[snapshot]
    return Merged(snapshot, data, pieces, filled, missing, known_end)


def _next_offset(copy: Copy, offset: int, end: int) -> int:
    return next((piece.offset for piece in copy.pieces.values() if piece.offset > offset), end)


def _check_common(longest: Copy, copies: Sequence[Copy]) -> None:
    for copy in copies:
        for piece in copy.pieces.values():
            other = longest.pieces.get(piece.offset, piece)
            if piece.end <= copy.committed and other.identity != piece.identity:
                raise CopiesDiverge(
                    f"offset {piece.offset} is committed in {copy.path} (node {copy.node_id}, epoch "
                    f"{piece.epoch}) and different in {longest.path} (node {longest.node_id}, epoch "
                    f"{other.epoch})"
                )


def _may_fill(longest: Copy, copy: Copy, offset: int, epoch: int) -> bool:
    """Whether the batch of `copy` at `offset` is the one that `longest` had there."""
    piece = copy.pieces.get(offset)
    if piece is None or piece.epoch < epoch:
        return False
    following = next((p for p in longest.pieces.values() if p.offset > offset), None)
    if following is None or piece.end > following.offset or piece.epoch > following.epoch:
        return False
    if piece.identity in longest.headers or piece.epoch == following.epoch:
        return True
    return any(
        other.offset >= piece.end and copy.pieces[other.offset].identity == other.identity
        for other in longest.pieces.values()
        if other.offset in copy.pieces
    )
