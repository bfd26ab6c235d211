"""The state of a leader: the positions of the other nodes, and the high watermark that follows from them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, NamedTuple

from penstock.raft.messages import NO_DIRECTORY, FetchRequest, ReplicaKey
from penstock.raft.voters import VoterSet

__all__ = ["Leader", "ParkedFetch", "Replica", "VoterChange"]

#: an observer that has not fetched for this long is forgotten
OBSERVER_SESSION_MS: Final = 300_000


class Replica:
    """One follower. Times are -1 as long as there is none."""

    __slots__ = (
        "caught_up_ms",
        "contact_ms",
        "end_offset",
        "key",
        "last_fetch_ms",
        "leader_end_offset",
        "seen_as",
    )

    def __init__(self, key: ReplicaKey, now_ms: float) -> None:
        self.key = key
        #: with the directory that it names itself, which voters of the beginning are known without
        self.seen_as = key
        #: everything below it is on the follower's disk
        self.end_offset = -1
        self.last_fetch_ms = -1.0
        #: time of the last request of any kind; starts when the node began to count, as a grace period
        self.contact_ms = now_ms
        #: when it last had all that the leader had then
        self.caught_up_ms = -1.0
        #: the leader's end when it last fetched
        self.leader_end_offset = -1

    def fetched(self, offset: int, leader_end_offset: int, now_ms: float) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_offset >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.last_fetch_ms = self.contact_ms = now_ms
        self.leader_end_offset = leader_end_offset


class ParkedFetch(NamedTuple):
    """A fetch that waits for new records or a new high watermark."""

    request: FetchRequest
    deadline_ms: float


class VoterChange(NamedTuple):
    """A voters record that is not committed yet, and the request that waits for the commit."""

    token: Hashable
    offset: int
    deadline_ms: float


class Leader:
    """The leader of one epoch, whose records start at `epoch_start_offset`."""

    __slots__ = (
        "begin_ms",
        "change",
        "epoch_start_offset",
        "granted",
        "parked",
        "replicas",
    )
    name: Final = "leader"

    def __init__(self, epoch_start_offset: int, now_ms: float, granted: frozenset[int] = frozenset()) -> None:
        self.epoch_start_offset = epoch_start_offset
        #: the other voters that have voted for it
        self.granted = granted
        self.replicas: dict[ReplicaKey, Replica] = {}
        self.parked: dict[Hashable, ParkedFetch] = {}
        #: when BeginQuorumEpoch is sent again to voters that do not fetch
        self.begin_ms = now_ms
        self.change: VoterChange | None = None

    def replica(self, key: ReplicaKey, voters: VoterSet, now_ms: float) -> Replica:
        """The follower `key`; a voter whose directory is not known goes by the key in the voter set."""
        seen_as = key
        voter = voters.get(key.id)
        if voter is not None and voters.has(key):
            key = voter.key
        found = self.replicas.get(key)
        if found is None:
            found = self.replicas[key] = Replica(key, now_ms)
        if seen_as.directory_id != NO_DIRECTORY:
            found.seen_as = seen_as
        return found

    def rename(self, old: ReplicaKey, new: ReplicaKey) -> None:
        """The voter set names the follower `old` as `new` from now on; what it has acknowledged stays."""
        if new != old and old in self.replicas:
            self.replicas[new] = self.replicas.pop(old)
            self.replicas[new].key = new

    def majority_end_offset(self, voters: VoterSet, own: ReplicaKey, own_flushed: int) -> int:
        """The offset below which a majority has everything on its disks."""
        ends = sorted(
            own_flushed if voter.key.id == own.id and voters.has(own) else self._end_offset(voter.key)
            for voter in voters
        )
        return ends[len(ends) - voters.majority]

    def may_commit(self, end_offset: int) -> bool:
        """Only counting replicas of a record of this epoch commits: earlier ones go with it (Raft, 5.4.2)."""
        return end_offset > self.epoch_start_offset

    def majority_contact_ms(self, voters: VoterSet, own: ReplicaKey, now_ms: float) -> float:
        """The latest time after which a majority, this leader included if it votes, was in contact."""
        contacts = sorted(
            now_ms
            if voter.key.id == own.id and voters.has(own)
            else self.replica(voter.key, voters, now_ms).contact_ms
            for voter in voters
        )
        return contacts[len(contacts) - voters.majority]

    def successors(self, voters: VoterSet, own: ReplicaKey) -> tuple[ReplicaKey, ...]:
        """The other voters, those with most on their disks first."""
        others = [voter.key for voter in voters.others(own.id)]
        return tuple(sorted(others, key=lambda key: (-self._end_offset(key), key.id)))

    def has_heard(self, node: int) -> bool:
        """Returns true if `node` has voted for this leader, or has fetched from it."""
        return node in self.granted or any(
            key.id == node and replica.last_fetch_ms >= 0 for key, replica in self.replicas.items()
        )

    def forget_observers(self, voters: VoterSet, now_ms: float) -> None:
        for key, replica in list(self.replicas.items()):
            if not voters.has(key) and now_ms - replica.contact_ms >= OBSERVER_SESSION_MS:
                del self.replicas[key]

    def _end_offset(self, key: ReplicaKey) -> int:
        replica = self.replicas.get(key)
        return -1 if replica is None else replica.end_offset
