"""What must hold after every event of a simulated quorum. The checkers know nothing of how nodes work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from penstock.raft.messages import ReplicaKey
from penstock.raft.node import RaftNode
from tests.raft.memory_log import Entry, MemoryLog

__all__ = ["Invariants", "Observed", "ViolatedInvariant"]


class ViolatedInvariant(AssertionError):
    """Named after the rule that does not hold."""


class Observed(Protocol):
    """A node as the checkers see it: its disk, and its core while it runs."""

    id: int
    directory_id: bytes
    log: MemoryLog
    #: by directory id
    lost: dict[bytes, list[Entry]]
    core: RaftNode | None


def ensure(holds: bool, rule: str, *facts: object) -> None:
    if not holds:
        raise ViolatedInvariant(f"{rule}: {facts}")


class Invariants:
    """Remembers what has ever been true, across crashes."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        #: (offset, epoch) to the batch and the epoch of the one before it
        self.batches: dict[tuple[int, int], tuple[bytes, int]] = {}
        #: offset to what is committed there
        self.committed: dict[int, Entry] = {}
        #: offset to the epoch in which it was first seen to be: a leader of an earlier one need not have it
        self.committed_in: dict[int, int] = {}
        self._high_watermarks: dict[int, tuple[RaftNode, int]] = {}
        self._recovering: set[ReplicaKey] = set()

    @property
    def committed_end(self) -> int:
        return max((entry.end_offset for entry in self.committed.values()), default=0)

    def check(self, node: Observed, everyone: Mapping[int, Observed]) -> None:
        """After an event at `node`."""
        core = node.core
        if core is None:
            return
        self._check_log(node.log)
        if core.quorum.state.voted is not None:
            self.voted(core.quorum.key, core.quorum.epoch, core.quorum.state.voted)
        self._check_recovery(node, core)
        self._check_leader(node, core)
        self._check_high_watermark(node, core, everyone.values())

    def voted(self, node: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        before = self.votes.setdefault((node, epoch), candidate)
        ensure(before == candidate, "one vote per voter and epoch", node, epoch, before, candidate)

    def _check_log(self, log: MemoryLog) -> None:
        """(offset, epoch) names one batch, and one history before it: the logs match."""
        previous = log.snapshot.epoch if log.snapshot is not None and log.start_offset else 0
        for entry in log.entries:
            known = self.batches.setdefault((entry.offset, entry.epoch), (entry.data, previous))
            ensure(known[0] == entry.data, "(offset, epoch) names one record", entry)
            ensure(known[1] == previous, "log matching", entry, known[1], previous)
            previous = entry.epoch

    def _check_recovery(self, node: Observed, core: RaftNode) -> None:
        """A replica that votes again has everything that was committed before its epoch."""
        if core.quorum.is_recovering:
            self._recovering.add(core.quorum.key)
        elif core.quorum.key in self._recovering:
            self._recovering.discard(core.quorum.key)
            has = {entry.offset: entry for entry in node.log.durable}
            for offset, entry in self.committed.items():
                complete = offset < node.log.start_offset or has.get(offset) == entry
                rule = "recovery ends with everything that is committed"
                ensure(complete or self.committed_in[offset] >= core.quorum.epoch, rule, node.id, entry)

    def _check_leader(self, node: Observed, core: RaftNode) -> None:
        if not core.quorum.is_leader or self.leaders.get(core.quorum.epoch) == node.id:
            return
        before = self.leaders.setdefault(core.quorum.epoch, node.id)
        ensure(before == node.id, "one leader per epoch", core.quorum.epoch, before, node.id)
        has = {entry.offset: entry for entry in node.log.entries}
        for offset, entry in self.committed.items():
            if self.committed_in[offset] > core.quorum.epoch:
                continue
            complete = offset < node.log.start_offset or has.get(offset) == entry
            ensure(complete, "leader completeness", core.quorum.epoch, node.id, entry)

    def _check_high_watermark(self, node: Observed, core: RaftNode, everyone: Iterable[Observed]) -> None:
        seen, before = self._high_watermarks.get(node.id, (core, 0))
        high_watermark = core.quorum.high_watermark
        if seen is core:
            ensure(high_watermark >= before, "high watermark monotone", node.id, before, high_watermark)
        self._high_watermarks[node.id] = (core, high_watermark)
        ensure(node.log.end_offset >= high_watermark, "no truncation below the high watermark", node.id)
        snapshot = node.log.snapshot
        ensure(
            snapshot is None or snapshot.offset <= high_watermark, "snapshot end <= high watermark", node.id
        )
        for entry in node.log.entries:
            if entry.end_offset > high_watermark:
                break
            known = self.committed.setdefault(entry.offset, entry)
            self.committed_in.setdefault(entry.offset, core.quorum.epoch)
            ensure(known == entry, "what is committed stays", node.id, known, entry)
        if core.quorum.is_leader and high_watermark > before:
            self._check_majority(core, everyone)

    def _check_majority(self, core: RaftNode, everyone: Iterable[Observed]) -> None:
        quorum = core.quorum
        entries = quorum.log.entries  # type: ignore[attr-defined]
        last = next((e for e in entries if e.end_offset == quorum.high_watermark), None)
        if last is None:
            return
        ensure(last.epoch == quorum.epoch, "commits past a record of its own epoch", quorum.epoch, last)
        holders = sum(_is_held(last, other, core) for other in everyone)
        ensure(
            holders >= core.quorum.voters.majority,
            "high watermark <= the flushed end of a majority",
            last,
            holders,
        )


def _is_held(entry: Entry, node: Observed, core: RaftNode) -> bool:
    """Whether a voter has `entry` on its disk, or has lost it after it had acknowledged it."""
    log = node.log
    if core.quorum.voters.has(ReplicaKey(node.id, node.directory_id)) and (
        entry in log.durable or log.start_offset >= entry.end_offset
    ):
        return node.core is None or not node.core.quorum.is_recovering
    voter = core.quorum.voters.get(node.id)
    return voter is not None and entry in node.lost.get(voter.key.directory_id, ())


def directory_of(node: int) -> bytes:
    """Every simulated node has one disk."""
    return bytes([node]) * 16
