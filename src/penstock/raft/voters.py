"""The voter set, and how it changed along the log (KIP-853).

A voter set takes effect when its record is appended, not when it is committed; truncating the log takes it
back. Successive sets differ by one voter, so that a majority of either overlaps with one of the other.
Static voters from the configuration are the set before the first record; their directories are not known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from penstock.raft.messages import NO_DIRECTORY, RECOVERING_DIRECTORY, ReplicaKey, Voter

__all__ = ["VoterHistory", "VoterSet"]


class VoterSet:
    """Immutable; at most one voter per node."""

    __slots__ = ("_by_id", "names_directories")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._by_id = {voter.key.id: voter for voter in sorted(voters)}
        #: whether the directory of every voter is known
        self.names_directories = all(voter.key.directory_id != NO_DIRECTORY for voter in self)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._by_id)})"

    @property
    def majority(self) -> int:
        return len(self._by_id) // 2 + 1

    def get(self, node: int) -> Voter | None:
        return self._by_id.get(node)

    def has(self, key: ReplicaKey) -> bool:
        """Whether `key` is a voter: a voter whose directory is not known yet is one on any."""
        voter = self._by_id.get(key.id)
        if voter is None or key.directory_id == RECOVERING_DIRECTORY:
            return False
        return voter.key.directory_id in (NO_DIRECTORY, key.directory_id)

    def others(self, node: int) -> list[Voter]:
        return [voter for voter in self if voter.key.id != node]

    def with_voter(self, voter: Voter) -> VoterSet:
        return VoterSet([*self.others(voter.key.id), voter])

    def without(self, node: int) -> VoterSet:
        return VoterSet(self.others(node))


class VoterHistory:
    """The voter sets of the log, by the offset of their record."""

    __slots__ = ("_offsets", "_sets")

    def __init__(self, static: VoterSet) -> None:
        #: -1: before any record
        self._offsets = [-1]
        self._sets = [static]

    @property
    def latest(self) -> VoterSet:
        return self._sets[-1]

    @property
    def latest_offset(self) -> int:
        """Of the record that the latest set stands in, -1 if it stands in none."""
        return self._offsets[-1]

    def at(self, end_offset: int) -> VoterSet:
        """The set that holds for what is below `end_offset`: what a snapshot that ends there must name."""
        return self._sets[max(0, bisect_left(self._offsets, end_offset) - 1)]

    def add(self, offset: int, voters: VoterSet) -> None:
        assert offset > self._offsets[-1]
        self._offsets.append(offset)
        self._sets.append(voters)

    def truncate_to(self, end_offset: int) -> None:
        """Forget records at `end_offset` and behind."""
        keep = max(1, bisect_left(self._offsets, end_offset))
        del self._offsets[keep:], self._sets[keep:]

    def start_at(self, offset: int) -> None:
        """Records below `offset` are in a snapshot: keep only the set that is in effect there."""
        drop = max(0, bisect_left(self._offsets, offset) - 1)
        del self._offsets[:drop], self._sets[:drop]

    def reset(self, offset: int, voters: VoterSet | None) -> None:
        """A snapshot that ends at `offset` has taken the log's place; it may name voters."""
        if voters is None:
            self.truncate_to(0)
        else:
            self._offsets[:] = [offset - 1]
            self._sets[:] = [voters]
