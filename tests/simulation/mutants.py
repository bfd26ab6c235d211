"""Guards, and brokers without them: what the simulator notices, and after how many seeds.

    make mutants          # the whole table

A mutant is a small change of the real code. The seeds that miss a guard are those that `make test` runs, with
the options that its scenario needs; a guard that no seed missed would be one that nothing shows to be needed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.broker.flusher import Flusher
from penstock.broker.handlers import replica_fetch
from penstock.broker.leadership import Leadership
from penstock.broker.metadata_log import MetadataLog
from penstock.broker.partition import Partition
from penstock.metadata import alter_partition
from penstock.metadata.policy import Policy
from penstock.model.errors import ErrorCode, StorageError
from penstock.raft.leader import Leader
from penstock.raft.node import RaftNode
from penstock.raft.roles import Role
from penstock.raft.state import QuorumState, encode_quorum_state
from penstock.replication.follower import FollowerState
from penstock.replication.leader import LeaderState
from penstock.replication.progress import FollowerProgress
from penstock.storage.flush import FlushPlan
from penstock.storage.producers import ProducerStates
from penstock.testing.simulation.scenario import Options, simulate

__all__ = ["MUTANTS", "Found", "Mutant", "hunt"]

#: seeds that a guard may stay unmissed
SEEDS_MAX: Final = 150
#: what makes leaders change, and nothing else
_UNREST: Final = ("kill", "stop", "pause", "partition", "one_way", "slow_link", "disk_slow")
_POWER: Final = ("power_loss", "power_loss_in_write", "kill_in_write", "pause", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A guard and what takes its place."""

    guard: str
    owner: object
    name: str
    instead: Callable[..., Any]
    brokers: int = 3
    #: where only some faults, and more of them, make a difference
    allowed: tuple[str, ...] | None = None
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    violation: str
    seeds: int


@contextmanager
def _without(mutant: Mutant) -> Iterator[None]:
    original = getattr(mutant.owner, mutant.name)
    setattr(mutant.owner, mutant.name, mutant.instead)
    try:
        yield
    finally:
        setattr(mutant.owner, mutant.name, original)


def hunt(mutant: Mutant, seeds: int = SEEDS_MAX) -> Found | None:
    """The first violation that a seed finds; None if none of them does."""
    for seed in range(seeds):
        options = Options.draw(seed, mutant.brokers)
        if mutant.allowed is not None:
            options = replace(options, allowed=mutant.allowed, faults=8, duration_s=options.duration_s + 4)
        with _without(mutant):
            violation = simulate(seed, options, settings=dict(mutant.settings)).violation
        if violation is None:
            continue
        # A seed that finds something with the guard in place, too, says nothing about the guard.
        if simulate(seed, options, settings=dict(mutant.settings)).violation is None:
            return Found(violation.name, seed + 1)
    return None


# -- what is on the disk


_flush, _sync = Flusher.when_flushed, FlushPlan.sync


def _acknowledge_before_sync(self: Flusher, callback: Callable[[StorageError | None], None]) -> None:
    _flush(self, lambda error: None)
    callback(None)


def _never_sync(self: FlushPlan) -> None:
    """Say that everything is on the disk."""


def _ignore_failed_sync(self: FlushPlan) -> None:
    try:
        _sync(self)
    except StorageError as e:
        del e


def _save_unsynced(self: MetadataLog, state: QuorumState) -> None:
    file = self._files.open(f"{self.log.path}/quorum-state", create=True)
    file.truncate(0)
    file.append(encode_quorum_state(state))
    file.close()


# -- the quorum


_take_role, _fetch_more, _commit = RaftNode._first_role, RaftNode._fetch_more, RaftNode._commit


def _lead_on(self: RaftNode) -> Role:
    if self.leader_id == self.key.id:
        return Leader(self.log.end_offset, self._now_ms)
    return _take_role(self)


def _with_unflushed(then: Callable[[RaftNode], None]) -> Callable[[RaftNode], None]:
    def mutant(self: RaftNode) -> None:
        flushed, self.flushed_offset = self.flushed_offset, self.log.end_offset
        then(self)
        self.flushed_offset = flushed

    return mutant


def _commit_alone(self: RaftNode) -> None:
    self.high_watermark = max(self.high_watermark, self.flushed_offset)


# -- partitions


def _acknowledge_at_once(self: Leadership, end_offset: int, callback: Callable[[ErrorCode], None]) -> None:
    callback(ErrorCode.NONE)


def _commit_own_end(self: LeaderState, now_ms: int) -> None:
    self.high_watermark = self.local_end


def _reached_high_watermark(self: LeaderState, progress: FollowerProgress) -> bool:
    return progress.end_offset >= self.high_watermark


def _eligible_in_any_incarnation(image: Any, state: Any) -> bool:
    broker = image.brokers.get(state.broker_id)
    return broker is not None and broker.active


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _nothing(*_: object) -> None:
    return None


def _no_error(*_: object) -> ErrorCode:
    return ErrorCode.NONE


MUTANTS: Final = (
    # one broker
    Mutant(
        guard="sync before acknowledgement",
        owner=Flusher,
        name="when_flushed",
        instead=_acknowledge_before_sync,
        brokers=1,
    ),
    Mutant(guard="syncs", owner=FlushPlan, name="sync", instead=_never_sync, brokers=1),
    Mutant(
        guard="failed syncs are final", owner=FlushPlan, name="sync", instead=_ignore_failed_sync, brokers=1
    ),
    Mutant(guard="sequence check", owner=ProducerStates, name="check", instead=_nothing, brokers=1),
    # the quorum
    Mutant(
        guard="fsync before vote",
        owner=MetadataLog,
        name="save_state",
        instead=_save_unsynced,
        allowed=_POWER,
    ),
    Mutant(guard="one vote per epoch", owner=RaftNode, name="_may_vote", instead=_always, allowed=_UNREST),
    Mutant(
        guard="votes compare logs", owner=RaftNode, name="_lacks_nothing", instead=_always, allowed=_UNREST
    ),
    Mutant(guard="no leader after a restart", owner=RaftNode, name="_first_role", instead=_lead_on),
    Mutant(
        guard="flush before fetch",
        owner=RaftNode,
        name="_fetch_more",
        instead=_with_unflushed(_fetch_more),
    ),
    Mutant(guard="leader counts flushed", owner=RaftNode, name="_commit", instead=_with_unflushed(_commit)),
    Mutant(guard="majority commits", owner=RaftNode, name="_commit", instead=_commit_alone),
    Mutant(guard="committed-epoch rule", owner=Leader, name="may_commit", instead=_always, allowed=_UNREST),
    Mutant(
        guard="quorum compares epochs", owner=RaftNode, name="_parting", instead=_nothing, allowed=_UNREST
    ),
    # partitions
    Mutant(guard="acks=all waits", owner=Leadership, name="when_committed", instead=_acknowledge_at_once),
    Mutant(guard="high watermark of the ISR", owner=LeaderState, name="_advance", instead=_commit_own_end),
    Mutant(
        guard="epoch-start check",
        owner=LeaderState,
        name="_has_reached",
        instead=_reached_high_watermark,
        allowed=_UNREST,
    ),
    Mutant(
        guard="maximal ISR",
        owner=LeaderState,
        name="maximal_isr",
        instead=lambda self: self.isr,
        allowed=_UNREST,
    ),
    Mutant(
        guard="min ISR for the high watermark",
        owner=LeaderState,
        name="_effective_min_isr",
        instead=lambda self: 1,
        allowed=_UNREST,
    ),
    Mutant(
        guard="broker epoch (controller)",
        owner=alter_partition,
        name="_eligible",
        instead=_eligible_in_any_incarnation,
        allowed=_POWER,
        settings=(("penstock.flush", "os"),),
    ),
    Mutant(
        guard="broker epoch (leader)",
        owner=LeaderState,
        name="_check_incarnation",
        instead=_nothing,
        allowed=_POWER,
        settings=(("penstock.flush", "os"),),
    ),
    Mutant(guard="no fenced replica joins", owner=alter_partition, name="_unfit", instead=_no_error),
    Mutant(guard="compare-and-set of the ISR", owner=alter_partition, name="_out_of_date", instead=_no_error),
    Mutant(
        guard="truncation by epoch",
        owner=replica_fetch,
        name="diverging_epoch",
        instead=_nothing,
        allowed=_UNREST,
    ),
    Mutant(
        guard="stale answers do not count",
        owner=FollowerState,
        name="_is_stale",
        instead=_never,
        allowed=_UNREST,
    ),
    Mutant(guard="clean elections", owner=Policy, name="unclean", instead=_always, allowed=_UNREST),
    Mutant(
        guard="reads end at the high watermark",
        owner=Partition,
        name="readable_end",
        instead=lambda self, committed: self.log.end_offset,
        allowed=_UNREST,
    ),
)


def main() -> int:
    missed = 0
    print(f"{'guard':34} {'seeds':>5}  {'violation':40} seconds", flush=True)
    for mutant in MUTANTS:
        began = time.perf_counter()
        found = hunt(mutant)
        missed += found is None
        seeds, violation = (found.seeds, found.violation) if found else ("-", "not found")
        print(f"{mutant.guard:34} {seeds:>5}  {violation:40} {time.perf_counter() - began:7.1f}", flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
