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

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from penstock.metadata.election import begin_change
from penstock.metadata.image import NO_LEADER, RECOVERING, ClusterImage, PartitionImage
from penstock.metadata.policy import Policy, Strategy
from penstock.model.errors import ErrorCode
from penstock.wire.metadata_records import PartitionChangeRecord

__all__ = [
    "Batches",
    "Recovery",
    "ReplicaReport",
    "Reports",
    "is_current",
    "most_complete",
    "recover",
    "strategy_for",
]


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
    #: the offset behind the last damage; None if it is not known
    damaged_to: int | None = None
    #: the offset behind the last sound record of a log that is damaged to its end; None for any other log
    sound_end: int | None = None
    #: the newest leader epochs of the log with their first offsets, oldest first; empty if not reported
    epochs: tuple[tuple[int, int], ...] = ()
    #: of the batch that the controller has asked for; None if it is not known
    batch_checksum: int | None = None

    @property
    def end(self) -> tuple[int, int]:
        """How far the log goes. Of two logs the one with the newer last epoch holds what was committed."""
        return self.last_epoch, self.end_offset


#: by broker: the report of its replica, or the reason why there is none
Reports: TypeAlias = Mapping[int, ReplicaReport | ErrorCode]
#: by broker, broker epoch and offset: the checksum of the batch with that offset; None if it is not known
Batches: TypeAlias = Mapping[tuple[int, int, int], int | None]


class Recovery(NamedTuple):
    """The decision on one partition.

    A record that elects a leader, or the brokers to wait for, with reasons.
    """

    record: PartitionChangeRecord | None
    elected: ReplicaReport | None
    waiting_for: Mapping[int, str]
    #: the offset whose batch has to be compared on all replicas first; None if there is none
    compare_at: int | None = None


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
    batches: Batches | None = None,
) -> Recovery:
    """Elect the most complete replica, or say which brokers have to report first.

    An aggressive recovery waits for the reports of brokers that are up as long as it is `patient`. Without
    `batches` nothing is compared.
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
    claims = _Claims(partition, list(current.values()), batches)
    believed = [claims.believed(report) for report in current.values()]
    if claims.compare_at is not None:
        return Recovery(None, None, missing, claims.compare_at)
    best = most_complete(believed, partition.last_known_leader)
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


class _Claims:
    """The last leader epochs that the replicas of a partition report, and whether they are possible.

    Why: no checksum covers the leader epoch of a batch, and files beside the log may be of another time. A
    bit that changed there must not make a log that lacks records the one that goes furthest.
    """

    def __init__(
        self, partition: PartitionImage, reports: Sequence[ReplicaReport], batches: Batches | None
    ) -> None:
        self._partition = partition
        self._reports = reports
        self._batches = batches
        #: the offset of a batch that has to be compared before the claims can be judged
        self.compare_at: int | None = None

    def believed(self, report: ReplicaReport) -> ReplicaReport:
        """The report without last epochs that the log cannot have; then it is damaged."""
        others = [other for other in self._reports if other.broker != report.broker]
        while report.last_epoch >= 0 and self._is_impossible(report, others):
            older = report.epochs[:-1]
            last_epoch = older[-1][0] if older else -1
            report = report._replace(last_epoch=last_epoch, epochs=older, damaged=True, damaged_to=None)
        return report

    def _is_impossible(self, report: ReplicaReport, others: Iterable[ReplicaReport]) -> bool:
        """Returns true if no leader has written the last epoch of a log where the log has it.

        A leader of a newer epoch had all that was committed before. So an epoch that no other replica has is
        impossible in the place of committed records of an older one, and in the place of records that the
        last leader has. Where neither is known, the last batch of the log decides: a replica with the same
        batch and a longer log has everything, whatever the epoch is.

        A leader that was elected uncleanly need not have had all of it: its epoch is believed.
        """
        partition, epoch = self._partition, report.last_epoch
        if epoch > partition.led_epoch:
            return True
        if not report.epochs or any(_has_epoch(other, epoch) for other in others):
            return False
        if partition.leader_recovery == RECOVERING and epoch == partition.led_epoch:
            return False
        start = report.epochs[-1][1]
        older = [other for other in others if other.last_epoch < epoch and other.end_offset > start]
        if any(o.high_watermark > start or o.broker in partition.last_known_leader for o in older):
            return True
        return any(self._has_all(other, report) for other in older)

    def _has_all(self, other: ReplicaReport, report: ReplicaReport) -> bool:
        """Returns true if `other` is not shorter, and has the last batch of the log that `report` is of.

        Of a log that is damaged to its end, that is the last sound batch; behind it the log has nothing that
        `other` could lack. A batch of an older epoch says nothing about the epoch.
        """
        if self._batches is None or other.end_offset < report.end_offset:
            return False
        last = report.end_offset - 1
        if report.sound_end is not None:
            last = report.sound_end - 1
            if last < report.epochs[-1][1]:
                return False
        places = [(each.broker, each.broker_epoch, last) for each in (report, other)]
        if any(place not in self._batches for place in places):
            self.compare_at = last
            return False
        mine, theirs = (self._batches[place] for place in places)
        return mine is not None and mine == theirs


def _has_epoch(report: ReplicaReport, epoch: int) -> bool:
    """Returns true if a log has records of `epoch`, or may have: a report has the newest epochs only."""
    if not report.epochs or epoch < report.epochs[0][0]:
        return report.end_offset > 0
    return any(known == epoch for known, _ in report.epochs)


def most_complete(reports: Iterable[ReplicaReport], last_leader: Iterable[int] = ()) -> ReplicaReport | None:
    """The replica whose log goes furthest; among equals a sound one, then the one with the earliest start.

    A damaged log leads if a sound one would lose records: those that the damaged replica knows to be
    committed, and those behind all of its damage, which may be committed, too. The last high watermark that a
    broker has saved is older than its log. What is damaged can be copied from the replicas that have it.
    """
    led = set(last_leader)

    def rank(report: ReplicaReport) -> tuple[tuple[int, int], bool, int, bool]:
        return report.end, not report.damaged, -report.start_offset, report.broker in led

    ranked = sorted(reports, key=rank, reverse=True)
    if not ranked:
        return None
    best = ranked[0]
    if best.damaged:
        # The longest alone: a shorter one may lack records that it has.
        sound = next((report for report in ranked if not report.damaged), None)
        if sound is not None and sound.last_epoch == best.last_epoch and _replaces(sound, best):
            return sound
    return best


def _replaces(sound: ReplicaReport, damaged: ReplicaReport) -> bool:
    """Returns true if no sound record is lost with the part of the damaged log that the sound one lacks."""
    if sound.end_offset < damaged.high_watermark:
        return False
    return damaged.damaged_to is None or damaged.damaged_to > sound.end_offset


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
