"""Guards, and brokers without them: what the simulator notices, and after how many seeds.

    make mutants                       # the whole table, on all cores
    make mutants GUARDS="'acks=all waits'"   # some of it

A mutant is a small change of the real code. The seeds that miss a guard are those that `make test` runs, with
the options that its scenario needs; a guard that no seed missed would be one that nothing shows to be needed.
Where one guard covers another, neither is missed alone: both are removed together, and `guard` names both.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.broker.fetch import replica_fetch
from penstock.broker.handlers import offsets
from penstock.broker.node.metadata_log import MetadataLog
from penstock.broker.replica import fetcher
from penstock.broker.replica.flusher import Flusher
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_sync import PartitionSync
from penstock.metadata import alter_partition, brokers
from penstock.metadata.policy import Policy
from penstock.metadata.withdrawal import withdraw
from penstock.model.errors import ApiError, ErrorCode, StorageError
from penstock.model.steps import Steps
from penstock.ports import Files
from penstock.raft.elections import Elections
from penstock.raft.follower_replication import FollowerReplication
from penstock.raft.leader import Leader
from penstock.raft.leader_replication import LeaderReplication
from penstock.raft.quorum import Quorum
from penstock.raft.roles import Role
from penstock.raft.state import QuorumState, encode_quorum_state
from penstock.replication.follower import FollowerState
from penstock.replication.leader import ANY_BROKER_EPOCH, LeaderState
from penstock.replication.progress import FollowerProgress
from penstock.storage import retention
from penstock.storage.config import LogConfig
from penstock.storage.flush import FlushPlan
from penstock.storage.producers import ProducerStates
from penstock.storage.segment import Segment
from penstock.wire.schema import Struct
from tests.testing.simulation.archive_mutants import ARCHIVE_MUTANTS
from tests.testing.simulation.disaster_mutants import DISASTER_MUTANTS
from tests.testing.simulation.healing_mutants import HEALING_MUTANTS
from tests.testing.simulation.hunting import Found, Mutant, hunt
from tests.testing.simulation.share_mutants import SHARE_MUTANTS
from tests.testing.simulation.stall_mutants import STALL_MUTANTS
from tests.testing.simulation.transaction_mutants import TRANSACTION_MUTANTS
from tools.arguments import Arguments

__all__ = ["MUTANTS", "Found", "Mutant", "hunt"]

#: what makes leaders change, and nothing else
_UNREST: Final = ("kill", "stop", "pause", "partition", "one_way", "slow_link", "disk_slow")
#: bytes that a power loss takes, replicas or not
_LEFT_TO_THE_SYSTEM: Final = (("penstock.flush", "os"),)
_POWER: Final = ("power_loss", "power_loss_in_write", "kill_in_write", "pause", "partition")


# -- what is on the disk


_flush, _sync = Flusher.when_flushed, FlushPlan.sync


def _acknowledge_before_sync(self: Flusher, callback: Callable[[StorageError | None], None]) -> None:
    _flush(self, lambda error: None)
    callback(None)


def _never_sync(self: FlushPlan, synced: bool = False) -> None:
    """Say that everything is on the disk."""


def _ignore_failed_sync(self: FlushPlan, synced: bool = False) -> None:
    try:
        _sync(self, synced)
    except StorageError as e:
        del e


def _save_unsynced(self: MetadataLog, state: QuorumState) -> None:
    file = self._files.open(f"{self.log.path}/quorum-state", create=True)
    file.truncate(0)
    file.append(encode_quorum_state(state))
    file.close()


# -- the quorum


_take_role = Quorum._first_role
_fetch_more, _commit = FollowerReplication.fetch_more, LeaderReplication.commit


def _lead_on(self: Quorum) -> Role:
    if self.leader_id == self.key.id:
        # Its epoch has begun before the end of its log, so it goes on deciding.
        return Leader(self.log.end_offset - 1, self.now_ms)
    return _take_role(self)


def _with_unflushed(then: Callable[[Any], None]) -> Callable[[Any], None]:
    def mutant(self: FollowerReplication | LeaderReplication) -> None:
        quorum = self._quorum
        flushed, quorum.flushed_offset = quorum.flushed_offset, quorum.log.end_offset
        then(self)
        quorum.flushed_offset = flushed

    return mutant


def _commit_alone(self: LeaderReplication) -> None:
    quorum = self._quorum
    quorum.high_watermark = max(quorum.high_watermark, quorum.flushed_offset)


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


def _is_up(self: LeaderState, replica: int, progress: FollowerProgress) -> bool:
    broker = self._brokers(replica)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


async def _fetch_on(unsynced: dict[Flusher, dict[FollowerState, None]], now_ms: Any) -> Any:
    return {}


_withdraw, _follow = withdraw, Partition.follow_watermarks


def _withdraw_as_if_clean(image: Any, policy: Policy, broker_id: int, **_: bool) -> Steps[list[Struct]]:
    return _withdraw(image, policy, broker_id)


def _delete_beyond(partition: Partition, offset: int) -> int:
    if not partition.leading:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition.log.start_at(offset)
    return partition.log.log_start_offset


def _follow_to_the_high_watermark(
    self: Partition, high_watermark: int, log_start_offset: int, size: int
) -> None:
    if log_start_offset > self.log.log_start_offset:
        log_start_offset = max(high_watermark, log_start_offset)
    _follow(self, high_watermark, log_start_offset, size)


def _may_grow_old(files: Files, segment: Segment, config: LogConfig, now_ms: int, cached_only: bool) -> bool:
    return config.delete and config.retention_ms >= 0


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
        changes=((Flusher, "when_flushed", _acknowledge_before_sync),),
        brokers=1,
    ),
    Mutant(guard="syncs", changes=((FlushPlan, "sync", _never_sync),), brokers=1),
    Mutant(guard="failed syncs are final", changes=((FlushPlan, "sync", _ignore_failed_sync),), brokers=1),
    Mutant(guard="sequence check", changes=((ProducerStates, "check", _nothing),), brokers=1),
    # the quorum
    Mutant(guard="fsync before vote", changes=((MetadataLog, "save_state", _save_unsynced),), allowed=_POWER),
    Mutant(guard="one vote per epoch", changes=((Elections, "_may_vote", _always),), allowed=_UNREST),
    Mutant(guard="votes compare logs", changes=((Elections, "_lacks_nothing", _always),), allowed=_UNREST),
    Mutant(
        guard="no leader after a restart",
        changes=((Quorum, "_first_role", _lead_on),),
        directed_fault="lost_tail",
    ),
    Mutant(
        guard="flush before fetch",
        changes=((FollowerReplication, "fetch_more", _with_unflushed(_fetch_more)),),
    ),
    Mutant(guard="leader counts flushed", changes=((LeaderReplication, "commit", _with_unflushed(_commit)),)),
    Mutant(guard="majority commits", changes=((LeaderReplication, "commit", _commit_alone),)),
    Mutant(guard="committed-epoch rule", changes=((Leader, "may_commit", _always),), allowed=_UNREST),
    Mutant(
        guard="quorum compares epochs",
        changes=((LeaderReplication, "_divergence", _nothing),),
        allowed=_UNREST,
    ),
    # partitions
    Mutant(guard="acks=all waits", changes=((Leadership, "when_committed", _acknowledge_at_once),)),
    Mutant(guard="high watermark of the ISR", changes=((LeaderState, "_advance", _commit_own_end),)),
    Mutant(guard="followers sync, then fetch", changes=((fetcher, "sync_followers", _fetch_on),)),
    Mutant(
        guard="new roles count what is synced",
        changes=((PartitionSync, "end_offset", property(lambda self: self.log.end_offset)),),
        allowed=_UNREST,
    ),
    Mutant(
        guard="epoch-start check",
        changes=((LeaderState, "_has_reached", _reached_high_watermark),),
        directed_fault="behind_the_epoch",
    ),
    Mutant(
        guard="maximal ISR",
        changes=((LeaderState, "maximal_isr", lambda self: self.isr),),
        directed_fault="unheard_answer",
    ),
    Mutant(
        guard="min ISR for the high watermark",
        changes=((LeaderState, "_effective_min_isr", lambda self: 1),),
        allowed=_UNREST,
    ),
    Mutant(
        guard="broker epoch (controller)",
        changes=((alter_partition, "_eligible", _eligible_in_any_incarnation),),
        directed_fault="late_request",
        settings=_LEFT_TO_THE_SYSTEM,
    ),
    Mutant(
        guard="broker epoch (leader: fetches, joins)",
        changes=(
            (LeaderState, "_check_incarnation", _nothing),
            (LeaderState, "_is_eligible", _is_up),
            (LeaderState, "_broker_epoch", lambda self, replica: ANY_BROKER_EPOCH),
        ),
        directed_fault="another_life",
        settings=_LEFT_TO_THE_SYSTEM,
    ),
    Mutant(
        guard="no fenced replica joins",
        changes=((alter_partition, "_unfit", _no_error),),
        directed_fault="late_request",
    ),
    Mutant(
        guard="compare-and-set of the ISR",
        changes=((alter_partition, "_out_of_date", _no_error),),
        directed_fault="deposed",
    ),
    Mutant(
        guard="truncation by epoch",
        changes=((replica_fetch, "diverging_epoch", _nothing),),
        directed_fault="behind_the_epoch",
    ),
    Mutant(
        guard="stale answers do not count",
        changes=((FollowerState, "_is_stale", _never),),
        directed_fault="stuck_answer",
    ),
    Mutant(guard="clean elections", changes=((Policy, "unclean", _always),), directed_fault="nobody_left"),
    Mutant(
        guard="unclean replicas are excluded",
        changes=((brokers, "withdraw", _withdraw_as_if_clean),),
        directed_fault="nobody_left",
    ),
    Mutant(
        guard="reads end at the high watermark",
        changes=((Partition, "readable_end", lambda self, committed: self.log.end_offset),),
        allowed=_UNREST,
    ),
    # the far end of logs
    Mutant(
        guard="deletion ends at the high watermark",
        changes=((offsets, "_delete_before", _delete_beyond),),
        operated=True,
    ),
    Mutant(
        guard="followers start where their leader does",
        changes=((Partition, "follow_watermarks", _follow_to_the_high_watermark),),
        operated=True,
    ),
    Mutant(
        guard="retention keeps what is young",
        changes=((retention, "_too_old", _may_grow_old),),
        operated=True,
    ),
    # damaged, stale and missing copies
    *DISASTER_MUTANTS,
    # brokers that are gone
    *HEALING_MUTANTS,
    # transactions
    *TRANSACTION_MUTANTS,
    # share groups
    *STALL_MUTANTS,
    *SHARE_MUTANTS,
    *ARCHIVE_MUTANTS,
)


class Hunted(NamedTuple):
    """A row of the table."""

    guard: str
    found: Found | None
    cpu_s: float

    def __str__(self) -> str:
        seeds, violation = (self.found.seeds, self.found.violation) if self.found else ("-", "not found")
        return f"{self.guard:40} {seeds:>5}  {violation:40} {self.cpu_s:7.1f}"


def _hunt(guard: str) -> Hunted:
    began = time.process_time()
    (mutant,) = (mutant for mutant in MUTANTS if mutant.guard == guard)
    return Hunted(guard, hunt(mutant), time.process_time() - began)


def main() -> int:
    parser = Arguments(prog="make mutants", description="Remove guards, and find the seeds that notice.")
    parser.add_argument("guards", nargs="*", help="their names as in the table (default: all)")
    known = [mutant.guard for mutant in MUTANTS]
    guards = parser.parse_args().guards or known
    if unknown := set(guards) - set(known):
        parser.error(f"no guard {', '.join(sorted(unknown))}")
    missed = 0
    print(f"{'guard':40} {'seeds':>5}  {'violation':40} CPU seconds", flush=True)
    # A mutant changes classes of its process, so each one has a process of its own.
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(_hunt, guards):
            missed += row.found is None
            print(row, flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
