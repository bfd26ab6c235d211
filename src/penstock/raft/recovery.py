"""Replicas whose log may lack records that they have acknowledged: a damaged log, or a disk that is new.

A majority that counted such a replica may be one short. Until the replica has everything that is committed,
it neither votes nor stands, and it fetches under a directory id that no voter has, so that leaders do not
count it. The quorum state records this, so it survives restarts. Recovery ends when the log on the disk
reaches a high watermark that the leader has sent since this replica started, and that is past a record of the
leader's own epoch: every earlier commit is below it.

There is one exception: replicas on new disks may elect one of themselves where no log has any record. A
majority of new disks cannot be distinguished from a new cluster.
"""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.raft.leader import Leader
from penstock.raft.messages import (
    NO_NODE,
    RECOVERING_DIRECTORY,
    ReplicaKey,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.quorum import Quorum
from penstock.raft.ready import STAYS_OUT, QuorumViolation
from penstock.raft.state import Recovery

__all__ = ["LogRecovery"]


class LogRecovery:
    """Decides whether this node's log can be relied on, and when it can again."""

    __slots__ = ("_behind", "_end", "_quorum")

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        #: voters whose last known epoch is below that of a committed record
        self._behind: set[int] = set()
        #: the offset at which recovery ends, once the leader has sent it
        self._end: int | None = None

    @property
    def fetch_key(self) -> ReplicaKey:
        """The key that this replica fetches under.

        Where its own voter set does not name it, a new disk has an id that no leader's voter set can have.
        """
        quorum = self._quorum
        recovery = quorum.state.recovery
        is_new_voter = recovery == Recovery.NEW and quorum.voters.get(quorum.key.id) is not None
        if quorum.follows_all:
            # All voters elected this leader, so no forgotten vote matters, and what the replica fetches
            # counts.
            return quorum.key
        if recovery == Recovery.FORGOTTEN:
            return ReplicaKey(quorum.key.id, quorum.next_directory_id)
        if recovery in (Recovery.DAMAGED, Recovery.REJOINING) or is_new_voter:
            return ReplicaKey(quorum.key.id, RECOVERING_DIRECTORY)
        return quorum.key

    def note_log(self, request: VoteRequest) -> None:
        """Note that another replica has records: the cluster is not new, even if this disk is."""
        if request.log_end.offset > 0:
            self._quorum.cluster_exists = True

    def may_vote_for(self, request: VoteRequest) -> bool:
        """Returns false if this replica may have lost the records that its vote would have to protect."""
        quorum = self._quorum
        return not quorum.is_recovering or (quorum.is_fresh and request.log_end.offset == 0)

    def cluster_founded(self) -> None:
        """This replica has voted in, or won, the first election of a new cluster: it has lost nothing."""
        quorum = self._quorum
        if quorum.state.recovery == Recovery.NEW:
            quorum.state = quorum.state._replace(recovery=Recovery.NONE, recover_to=0)

    def leader_committed(self, high_watermark: int) -> None:
        """The leader of this epoch has committed up to `high_watermark`."""
        quorum = self._quorum
        reached = quorum.state.recover_to <= high_watermark <= quorum.log.end_offset
        if quorum.is_recovering and reached and self._is_of_this_epoch(high_watermark):
            self._end = high_watermark

    def _is_of_this_epoch(self, high_watermark: int) -> bool:
        """Returns true if a record of this epoch is committed: a new leader may know older commits only."""
        quorum = self._quorum
        log = quorum.log
        if log.snapshot is not None and log.snapshot.epoch == quorum.epoch:
            return True
        return (
            log.last_epoch == quorum.epoch
            and high_watermark > log.end_offset_for_epoch(quorum.epoch - 1).offset
        )

    def finish(self) -> None:
        """Vote and count again once everything that is committed is on the disk."""
        quorum = self._quorum
        if quorum.follows_all:
            # A record of this epoch follows everything that was committed before.
            if quorum.is_flushed and quorum.log.last_epoch == quorum.epoch:
                quorum.votes_again()
        elif quorum.has_forgotten:
            self._change_key()
        elif self._end is not None and quorum.flushed_offset >= self._end:
            self._end = None
            if quorum.is_recovering:
                quorum.state = quorum.state._replace(recovery=Recovery.NONE, recover_to=0)

    def _change_key(self) -> None:
        """Give the key up whose votes are forgotten, once this replica is complete and no voter any more.

        Under that key it may have promised a later epoch to another candidate.
        """
        quorum = self._quorum
        if self._end is not None and quorum.flushed_offset >= self._end:
            quorum.caught_up = True
        is_removed = not quorum.is_voter and quorum.history.latest_offset < quorum.high_watermark
        if quorum.caught_up and is_removed:
            quorum.state = quorum.state._replace(
                recovery=Recovery.NONE, recover_to=0, directory_id=quorum.next_directory_id
            )

    def note_epoch(self, peer: int, response: VoteResponse) -> None:
        """Stop if so many voters follow a leader of an older epoch that committed records must be lost there.

        A record is committed by a majority, and every member of it was in the record's epoch. Epochs only
        rise, so voters that are below it were either not of that majority, or their disks went back.
        """
        quorum = self._quorum
        is_voter = response.error != ErrorCode.INVALID_VOTER_KEY and response.leader_id != NO_NODE
        if response.epoch >= quorum.epoch or not is_voter or response.epoch >= self._committed_epoch():
            self._behind.discard(peer)
            return
        self._behind.add(peer)
        voters = quorum.voters
        behind = sorted(voter.key.id for voter in voters if voter.key.id in self._behind)
        if len(behind) > len(voters) - voters.majority:
            raise QuorumViolation(
                f"voters {behind} follow a leader of epoch {response.epoch}, but here offsets below "
                f"{quorum.high_watermark} are committed, up to epoch {self._committed_epoch()}: a "
                f"majority of the voters went back to older data. {STAYS_OUT}"
            )

    def _committed_epoch(self) -> int:
        """The epoch of the last record that is known to be committed, 0 if there is none."""
        quorum = self._quorum
        log, high_watermark = quorum.log, quorum.high_watermark
        epoch = log.last_epoch
        while epoch and (before := log.end_offset_for_epoch(epoch - 1)).offset >= high_watermark:
            epoch = min(before.epoch, epoch - 1)
        return epoch if high_watermark else 0

    def void_acknowledgements(self, key: ReplicaKey) -> None:
        """As the leader: forget what a voter acknowledged before it lost its log, or its disk.

        Otherwise its old end offset could still commit records that it no longer has.
        """
        quorum = self._quorum
        assert isinstance(quorum.role, Leader)
        voter = quorum.voters.get(key.id)
        if voter is None:
            return
        if quorum.voters.has(key):
            quorum.role.replicas.pop(ReplicaKey(key.id, RECOVERING_DIRECTORY), None)
        elif voter.key in quorum.role.replicas:
            quorum.role.replicas[voter.key].end_offset = -1
