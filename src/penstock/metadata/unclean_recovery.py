"""Unclean recovery (KIP-966): which replica leads a partition whose ISR and eligible set have no one left.

No replica leads because it led last, or because it is up first. The controller collects the log ends of the
replicas (`ReplicaReport`) and elects the most complete one. `unclean.recovery.strategy` says when:

- balanced: when every replica whose broker is registered has reported. Nothing is lost that one of them has.
- aggressive: when the replicas whose brokers are up have reported. Records that only others have are lost.
- none: never. An operator decides, with ElectLeaders or by another strategy.

Invariant: a report counts only for the broker epoch that it came from, and only if the replica had stopped
following in the partition's present leader epoch. Such a log does not change until there is a leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from penstock.metadata.election import begin_change
from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from penstock.metadata.policy import Policy, Strategy
from penstock.model.errors import ErrorCode
from penstock.wire.metadata_records import PartitionChangeRecord

__all__ = ["Recovery", "ReplicaReport", "Reports", "is_current", "most_complete", "recover", "strategy_for"]


class ReplicaReport(NamedTuple):
    """The report of a broker about a replica's log."""

    broker: int
    #: of the registration that the report came from
    broker_epoch: int
    #: the leader epoch in which the replica stands by
    leader_epoch: int
    #: the leader epoch of the last record; -1 in an empty log
    last_epoch: int
    end_offset: int
    start_offset: int = 0
    high_watermark: int = 0
    #: whether the log is known to have damaged ranges or holes
    damaged: bool = False

    @property
    def end(self) -> tuple[int, int]:
        """How far the log goes. Of two logs the one with the newer last epoch holds what was committed."""
        return self.last_epoch, self.end_offset


#: by broker: the report of its replica, or the reason why there is none
Reports: TypeAlias = Mapping[int, ReplicaReport | ErrorCode]


class Recovery(NamedTuple):
    """The decision on one partition.

    A record that elects a leader, or the brokers to wait for, with reasons.
    """

    record: PartitionChangeRecord | None
    elected: ReplicaReport | None
    waiting_for: Mapping[int, str]


def strategy_for(image: ClusterImage, policy: Policy, partition: PartitionImage) -> Strategy | None:
    """How to find a leader for a partition; None where an ordinary election has one, or will.

    While the ISR or the ELR has members, the partition waits for them, unless its topic's strategy is
    aggressive and none of them is up.
    """
    if partition.leader != NO_LEADER:
        return None
    strategy = policy.strategy(image, image.topics_by_id[partition.topic_id].name)
    candidates = partition.isr or partition.elr
    if not candidates:
        return strategy
    waits = strategy is not Strategy.AGGRESSIVE or any(_is_active(image, node) for node in candidates)
    return None if waits else strategy


def recover(
    image: ClusterImage,
    policy: Policy,
    partition: PartitionImage,
    strategy: Strategy,
    reports: Reports,
    *,
    patient: bool = True,
) -> Recovery:
    """Elect the most complete replica, or say which brokers have to report first.

    An aggressive recovery waits for the reports of brokers that are up as long as it is `patient`.
    """
    current = {
        node: report
        for node in partition.replicas
        if isinstance(report := reports.get(node), ReplicaReport) and is_current(image, partition, report)
    }
    missing = _missing(image, partition, reports, current)
    if strategy is Strategy.NONE:
        return Recovery(None, None, missing or dict.fromkeys(current, "an operator's election"))
    if strategy is Strategy.BALANCED and missing:
        return Recovery(None, None, missing)
    if patient and any(_is_active(image, node) and node not in reports for node in missing):
        return Recovery(None, None, missing)
    possible = [_possible(partition, report) for report in current.values()]
    best = most_complete(possible, partition.last_known_leader)
    if best is None:
        return Recovery(None, None, missing)
    change = begin_change(image, policy, partition)
    change.recovered_by = best.broker
    return Recovery(change.build(), best, missing)


def is_current(image: ClusterImage, partition: PartitionImage, report: ReplicaReport) -> bool:
    """Whether the replica's log is still as reported, and its broker may lead."""
    broker = image.brokers.get(report.broker)
    return (
        broker is not None
        and broker.active
        and broker.epoch == report.broker_epoch
        and partition.leader_epoch == report.leader_epoch
    )


def _possible(partition: PartitionImage, report: ReplicaReport) -> ReplicaReport:
    """The report, whose last epoch counts for nothing if the partition has not had that epoch yet.

    Why: no checksum covers the leader epoch of a batch. A bit that changed there must not make a log that
    lacks records the one that goes furthest.
    """
    if report.last_epoch <= partition.leader_epoch:
        return report
    return report._replace(last_epoch=-1, damaged=True)


def most_complete(reports: Iterable[ReplicaReport], last_leader: Iterable[int] = ()) -> ReplicaReport | None:
    """The replica whose log goes furthest; among equals a sound one, then the one with the earliest start.

    A damaged log leads only if no sound one has all that the damaged replica knows to be committed: what lies
    behind would otherwise be lost, and what is damaged can be copied from the replicas that have it.
    """
    led = set(last_leader)

    def rank(report: ReplicaReport) -> tuple[tuple[int, int], bool, int, bool]:
        return report.end, not report.damaged, -report.start_offset, report.broker in led

    ranked = sorted(reports, key=rank, reverse=True)
    if not ranked:
        return None
    best = ranked[0]
    if best.damaged:
        for sound in (report for report in ranked if not report.damaged):
            if sound.last_epoch == best.last_epoch and sound.end_offset >= best.high_watermark:
                return sound
    return best


def _missing(
    image: ClusterImage, partition: PartitionImage, reports: Reports, current: Mapping[int, ReplicaReport]
) -> dict[int, str]:
    """The registered brokers whose replicas are not known, and why."""
    missing: dict[int, str] = {}
    for node in partition.replicas:
        broker = image.brokers.get(node)
        if broker is None or node in current:
            continue
        if broker.in_controlled_shutdown:
            missing[node] = "the broker is shutting down"
        elif broker.fenced:
            missing[node] = "the broker is not up"
        else:
            report = reports.get(node)
            missing[node] = report.name if isinstance(report, ErrorCode) else "no report yet"
    return missing


def _is_active(image: ClusterImage, node: int) -> bool:
    broker = image.brokers.get(node)
    return broker is not None and broker.active
