"""Replicas whose log may lack records that they have acknowledged: a damaged log, or a disk that is new.

Such a replica has broken its promise: a majority that counted it may be one short. Until it has everything
that is committed, it neither votes nor stands, and fetches under a directory id that is no voter's, so that
leaders do not count it. The mark of that is in the quorum state and outlives restarts. Recovery ends when the
log on the disk reaches a high watermark which the leader has told this replica since its start, and which is
past a record of the leader's own epoch: by then every earlier commit is below it.

Only replicas on new disks may do one thing before: elect one of themselves where no log has any record. A
majority of new disks is a new cluster, as far as anybody can tell.
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

__all__ = ["Recovering"]


class Recovering(Quorum):
    """The part of a node that knows whether its own log can be relied on."""

    __slots__ = ()

    @property
    def _fetch_key(self) -> ReplicaKey:
        """The key that this replica fetches under.

        Where its own voter set does not name it, a new disk has an id that no leader's voter set can have.
        """
        recovery = self.state.recovery
        is_new_voter = recovery == Recovery.NEW and self.voters.get(self.key.id) is not None
        if recovery in (Recovery.DAMAGED, Recovery.REJOINING) or is_new_voter:
            return ReplicaKey(self.key.id, RECOVERING_DIRECTORY)
        return self.key

    def _hear_of_log(self, request: VoteRequest) -> None:
        """Note that another replica has records: the cluster is not new, even if this disk is."""
        if request.log_end.offset > 0:
            self._cluster_exists = True

    def _may_give_vote(self, request: VoteRequest) -> bool:
        """Returns false if this replica may have lost the records that its vote would have to protect."""
        return not self.is_recovering or (self.is_fresh and request.log_end.offset == 0)

    def _found_cluster(self) -> None:
        """This replica has voted in, or won, the first election of a new cluster: it has lost nothing."""
        if self.state.recovery == Recovery.NEW:
            self.state = self.state._replace(recovery=Recovery.NONE, recover_to=0)

    def _leader_told(self, high_watermark: int) -> None:
        """The leader of this epoch has committed up to `high_watermark`."""
        reached = self.state.recover_to <= high_watermark <= self.log.end_offset
        if self.is_recovering and reached and self._is_of_this_epoch(high_watermark):
            self._recovery_end = high_watermark

    def _is_of_this_epoch(self, high_watermark: int) -> bool:
        """Returns true if a record of this epoch is committed: a new leader may know older commits only."""
        log = self.log
        if log.snapshot is not None and log.snapshot.epoch == self.epoch:
            return True
        return (
            log.last_epoch == self.epoch and high_watermark > log.end_offset_for_epoch(self.epoch - 1).offset
        )

    def _end_recovery(self) -> None:
        """Vote and count again once everything that is committed is on the disk."""
        if self._recovery_end is not None and self.flushed_offset >= self._recovery_end:
            self._recovery_end = None
            if self.is_recovering:
                self.state = self.state._replace(recovery=Recovery.NONE, recover_to=0)

    def _hear_of_epoch(self, peer: int, response: VoteResponse) -> None:
        """Stop if so many voters follow a leader of an older epoch that committed records must be lost there.

        A record is committed by a majority, and every member of it was in the record's epoch. Epochs only
        rise, so voters that are below it were either not of that majority, or their disks went back.
        """
        is_voter = response.error != ErrorCode.INVALID_VOTER_KEY and response.leader_id != NO_NODE
        if response.epoch >= self.epoch or not is_voter or response.epoch >= self._committed_epoch():
            self._behind.discard(peer)
            return
        self._behind.add(peer)
        voters = self.voters
        behind = sorted(voter.key.id for voter in voters if voter.key.id in self._behind)
        if len(behind) > len(voters) - voters.majority:
            raise QuorumViolation(
                f"voters {behind} follow a leader of epoch {response.epoch}, but here offsets below "
                f"{self.high_watermark} are committed, up to epoch {self._committed_epoch()}: a majority of "
                f"the voters went back to older data. {STAYS_OUT}"
            )

    def _committed_epoch(self) -> int:
        """The epoch of the last record that is known to be committed, 0 if there is none."""
        epoch = self.log.last_epoch
        while epoch and (before := self.log.end_offset_for_epoch(epoch - 1)).offset >= self.high_watermark:
            epoch = min(before.epoch, epoch - 1)
        return epoch if self.high_watermark else 0

    def _void_acknowledgements(self, key: ReplicaKey) -> None:
        """As the leader: forget what a voter acknowledged before it lost its log, or its disk.

        Counted on, its old end offset could still commit records that it has no more.
        """
        assert isinstance(self.role, Leader)
        voter = self.voters.get(key.id)
        if voter is None:
            return
        if self.voters.has(key):
            self.role.replicas.pop(ReplicaKey(key.id, RECOVERING_DIRECTORY), None)
        elif voter.key in self.role.replicas:
            self.role.replicas[voter.key].end_offset = -1
