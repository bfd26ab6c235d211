"""Unclean recovery: which replica leads when neither ISR nor ELR has one, and what is waited for before."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from penstock.metadata.brokers import unregister_broker
from penstock.metadata.configs import config_records
from penstock.metadata.image import BROKER, RECOVERING, TOPIC, PartitionImage
from penstock.metadata.policy import MIN_ISR, UNCLEAN, UNCLEAN_RECOVERY, Policy, Strategy
from penstock.metadata.unclean_recovery import Recovery, ReplicaReport, most_complete, recover, strategy_for
from penstock.model.errors import ErrorCode
from penstock.model.steps import at_once
from penstock.wire.metadata_records import PartitionChangeRecord
from tests.metadata.stage import Stage


def crashed(stage: Stage, *replicas: int, **settings: bool) -> PartitionImage:
    """A partition all of whose brokers were killed and have registered again."""
    partition = stage.topic("t", list(replicas), **settings)
    stage.fence(*replicas)
    for node in replicas:
        stage.register(node)
    assert (partition.leader, partition.isr, partition.elr) == (-1, [], [])
    return partition


def report(broker: int, last_epoch: int, end: int, **fields: int) -> ReplicaReport:
    return ReplicaReport(broker, 0, 0, last_epoch, end, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reports", "leader"),
    [
        ([report(1, 3, 9), report(2, 3, 10)], 2),
        # A newer epoch counts for more than a longer log: its leader had what was committed before.
        ([report(1, 3, 9), report(2, 2, 10)], 1),
        ([report(1, -1, 0), report(2, 0, 1)], 2),
        ([report(1, 3, 9), report(2, 3, 9)], 2),
        ([report(1, 3, 9), report(2, 3, 9, damaged=True)], 1),
        ([report(1, 3, 9), report(2, 3, 9, start_offset=5)], 1),
        # What lies behind the sound log is known to be committed: the damaged one has to lead.
        ([report(1, 3, 8), report(2, 3, 9, damaged=True, high_watermark=9)], 2),
        ([report(1, 3, 8), report(2, 3, 9, damaged=True, high_watermark=8)], 1),
        ([report(1, 2, 9), report(2, 3, 9, damaged=True, high_watermark=8)], 2),
        # The records behind the sound log are sound, and may be committed: the high watermark is an old one.
        ([report(1, 3, 8), report(2, 3, 12, damaged=True, high_watermark=7, damaged_to=5)], 2),
        ([report(1, 3, 8), report(2, 3, 12, damaged=True, high_watermark=7, damaged_to=8)], 2),
        # The damage reaches beyond the sound log, so that its end may be wrong, too.
        ([report(1, 3, 8), report(2, 3, 12, damaged=True, high_watermark=7, damaged_to=9)], 1),
        # The longest sound log decides: what it has may be committed, and a shorter one lacks it.
        (
            [
                report(1, 3, 8),
                report(2, 3, 12, damaged=True, high_watermark=7, damaged_to=9),
                report(3, 3, 10),
            ],
            2,
        ),
        (
            [
                report(1, 3, 8),
                report(2, 3, 12, damaged=True, high_watermark=7, damaged_to=11),
                report(3, 3, 9),
            ],
            3,
        ),
        ([report(1, 3, 12), report(2, 3, 12, damaged=True, high_watermark=7, damaged_to=5)], 1),
        ([report(1, 3, 9, damaged=True)], 1),
    ],
)
def test_the_most_complete_replica(reports: list[ReplicaReport], leader: int) -> None:
    for given in (reports, reports[::-1]):
        best = most_complete(given, last_leader=[2])
        assert best is not None and best.broker == leader
    assert most_complete([]) is None


def test_the_most_complete_replica_leads_once_all_have_reported() -> None:
    """Neither the last leader, nor the first that is back: each may have lost what another has."""
    stage = Stage(3)
    partition = crashed(stage, 1, 2, 3)
    ends = {1: 5, 2: 7, 3: 6}
    stage.beat(1)
    assert stage.recover(ends) == {2: "the broker is not up", 3: "the broker is not up"}
    stage.beat(3)
    assert stage.recover(ends) == {2: "the broker is not up"}
    assert partition.leader == -1
    stage.beat(2)
    stage.recover(ends)
    assert (partition.leader, partition.isr, partition.elr) == (2, [2], [])
    assert (partition.leader_recovery, partition.last_known_leader) == (RECOVERING, [])


def test_an_epoch_that_the_partition_never_had_makes_no_log_complete() -> None:
    """No checksum covers a batch's leader epoch: a bit of it may have changed on one disk."""
    stage = Stage(2)
    partition = crashed(stage, 1, 2)
    stage.beat(1)
    stage.beat(2)
    reports = stage.reports(partition, {1: 5, 2: 9})
    reports[1] = reports[1]._replace(last_epoch=1 << 23)
    recovery = recover(stage.image, stage.policy, partition, Strategy.BALANCED, reports)
    assert recovery.elected is not None and recovery.elected.broker == 2
    alone = recover(stage.image, stage.policy, partition, Strategy.AGGRESSIVE, {1: reports[1]}, patient=False)
    assert alone.elected is not None and alone.elected.broker == 1


class Held(NamedTuple):
    """The log of a replica: (leader epoch, first offset) pairs, end offset, known high watermark."""

    epochs: tuple[tuple[int, int], ...]
    end_offset: int
    high_watermark: int


def histories(stage: Stage, partition: PartitionImage, *logs: Held) -> dict[int, ReplicaReport]:
    """The reports of brokers 1, 2 and 3 on these logs."""
    reports = stage.reports(partition)
    for node, held in enumerate(logs, 1):
        reports[node] = reports[node]._replace(last_epoch=held.epochs[-1][0], **held._asdict())
    return reports


def elected_of(stage: Stage, partition: PartitionImage, reports: dict[int, ReplicaReport]) -> int | None:
    recovery = recover(stage.image, stage.policy, partition, Strategy.BALANCED, reports)
    return recovery.elected and recovery.elected.broker


def led_in_turn(stage: Stage, *leaders: int) -> PartitionImage:
    """A partition that brokers have led one after the other from epoch 1 on, and that has no leader now."""
    partition = stage.topic("t", [1, 2, 3])
    for leader in leaders:
        stage.commit([_change(partition, leader)])
    stage.commit([_change(partition, -1)])
    partition.isr, partition.last_known_leader = [], [leaders[-1]]
    return partition


def _change(partition: PartitionImage, leader: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=partition.index, topic_id=partition.topic_id, leader=leader)


def test_an_epoch_without_a_leader_is_damage_though_the_partition_is_past_it() -> None:
    """The loss of the leader begins an epoch, too: no batch can have that one or a later one."""
    stage = Stage(3)
    partition = crashed(stage, 1, 2, 3)
    for node in (1, 2, 3):
        stage.beat(node)
    assert partition.led_epoch < partition.leader_epoch
    raised = partition.led_epoch + 1
    sound = ((0, 0),)
    reports = histories(
        stage, partition, Held(((0, 0), (raised, 4)), 5, 0), Held(sound, 9, 0), Held(sound, 8, 0)
    )
    assert elected_of(stage, partition, reports) == 2
    reports[2] = reports[2]._replace(epochs=())
    assert elected_of(stage, partition, reports) == 2


def test_an_epoch_in_place_of_records_that_are_committed_is_damage() -> None:
    """Epoch 1 has had a leader that wrote nothing. One bit more makes it the epoch of a batch of epoch 0."""
    stage = Stage(3)
    partition = led_in_turn(stage, 1)
    assert partition.led_epoch == 1
    damaged = Held(((0, 0), (1, 4)), 5, 5)
    reports = histories(stage, partition, damaged, Held(((0, 0),), 9, 6), Held(((0, 0),), 8, 4))
    assert elected_of(stage, partition, reports) == 2


def test_an_epoch_that_the_last_leader_does_not_have_is_damage() -> None:
    """That replica has records of an older epoch there, so that it has not written those of a newer one."""
    stage = Stage(3)
    partition = led_in_turn(stage, 2)
    damaged = Held(((0, 0), (1, 4)), 5, 0)
    reports = histories(stage, partition, damaged, Held(((0, 0),), 9, 0), Held(((0, 0),), 8, 0))
    assert elected_of(stage, partition, reports) == 2


def test_an_epoch_that_one_replica_alone_has_may_be_right() -> None:
    """Its leader wrote, and all were killed before a follower had fetched: no evidence contradicts it."""
    stage = Stage(3)
    partition = led_in_turn(stage, 1)
    written = Held(((0, 0), (1, 4)), 5, 4)
    # The followers have records of epoch 0 that were never committed.
    reports = histories(stage, partition, written, Held(((0, 0),), 6, 4), Held(((0, 0),), 6, 4))
    assert elected_of(stage, partition, reports) == 1
    # Another replica has the epoch as well.
    both = histories(stage, partition, written, Held(((0, 0), (1, 4)), 5, 9), Held(((0, 0),), 9, 9))
    assert elected_of(stage, partition, both) in (1, 2)
    # The log of the last leader ends before: it may have lost the records.
    partition.last_known_leader = [2]
    shorter = histories(stage, partition, written, Held(((0, 0),), 4, 4), Held(((0, 0),), 4, 4))
    assert elected_of(stage, partition, shorter) == 1


@pytest.mark.parametrize(
    ("checksums", "leader"),
    [
        ({1: 7, 2: 7, 3: 7}, 2),
        ({1: 7, 2: 8, 3: 8}, 1),
        ({1: 7, 2: 8, 3: 7}, 2),
        ({1: None, 2: None, 3: 8}, 1),
    ],
)
def test_the_last_batch_decides_about_an_epoch_that_one_replica_alone_has(
    checksums: dict[int, int | None], leader: int
) -> None:
    """A replica with the same batch and a longer log lacks nothing, whatever the epoch is."""
    stage = Stage(3)
    partition = led_in_turn(stage, 1)
    claim = Held(((0, 0), (1, 4)), 5, 0)
    reports = histories(stage, partition, claim, Held(((0, 0),), 9, 0), Held(((0, 0),), 8, 0))
    batches: dict[tuple[int, int, int], int | None] = {}

    def outcome() -> Recovery:
        return recover(stage.image, stage.policy, partition, Strategy.BALANCED, reports, batches=batches)

    assert (outcome().record, outcome().compare_at) == (None, 4)
    for node, checksum in checksums.items():
        batches[node, stage.epoch(node), 4] = checksum
    elected = outcome().elected
    assert elected is not None and elected.broker == leader
    # A comparison is not possible everywhere.
    assert elected_of(stage, partition, reports) == 1


@pytest.mark.parametrize(
    ("sound_end", "checksums", "leader"),
    [
        (7, {1: 7, 2: 7, 3: 7}, 2),
        (7, {1: 7, 2: 8, 3: 8}, 1),
        # No sound batch has the epoch: equal batches before it say nothing about it.
        (4, None, 1),
    ],
)
def test_the_last_sound_batch_decides_about_the_epoch_of_a_log_whose_end_is_lost(
    sound_end: int, checksums: dict[int, int | None] | None, leader: int
) -> None:
    """Behind that batch the log has nothing that a replica of the same length could lack."""
    stage = Stage(3)
    partition = led_in_turn(stage, 1)
    claim = Held(((0, 0), (1, 4)), 9, 0)
    reports = histories(stage, partition, claim, Held(((0, 0),), 9, 0), Held(((0, 0),), 8, 0))
    reports[1] = reports[1]._replace(damaged=True, damaged_to=9, sound_end=sound_end)
    batches: dict[tuple[int, int, int], int | None] = {}

    def outcome() -> Recovery:
        return recover(stage.image, stage.policy, partition, Strategy.BALANCED, reports, batches=batches)

    assert outcome().compare_at == (None if checksums is None else sound_end - 1)
    for node, checksum in (checksums or {}).items():
        batches[node, stage.epoch(node), sound_end - 1] = checksum
    elected = outcome().elected
    assert elected is not None and elected.broker == leader
    # A log that is shorter may lack what was lost.
    reports[2] = reports[2]._replace(end_offset=8)
    elected = outcome().elected
    assert elected is not None and elected.broker == 1


def test_the_epoch_of_an_unclean_election_is_trusted() -> None:
    """Such a leader need not have had all committed records."""
    stage = Stage(3)
    partition = led_in_turn(stage, 1)
    partition.leader_recovery = RECOVERING
    written = Held(((0, 0), (1, 4)), 5, 4)
    reports = histories(stage, partition, written, Held(((0, 0),), 9, 9), Held(((0, 0),), 9, 9))
    assert elected_of(stage, partition, reports) == 1


def test_the_only_replica_leads_with_any_epoch() -> None:
    stage = Stage(1)
    partition = stage.topic("t", [1], min_isr=1)
    stage.fence(1)
    stage.register(1)
    stage.beat(1)
    assert partition.leader == 1


def test_a_broker_that_was_unregistered_is_not_waited_for() -> None:
    stage = Stage(3)
    partition = crashed(stage, 1, 2, 3)
    stage.beat(1)
    stage.beat(2)
    stage.commit(at_once(unregister_broker(stage.image, stage.policy, 3)))
    stage.recover({1: 1})
    assert partition.leader == 1


def test_an_empty_disk_under_a_known_id_does_not_lead_for_having_led() -> None:
    """Unregistered and registered again, with nothing left: the other replica has all there is."""
    stage = Stage(2)
    partition = stage.topic("t", [1, 2], min_isr=1)
    stage.alter(partition, [1])
    stage.fence(1)
    stage.commit(at_once(unregister_broker(stage.image, stage.policy, 1)))
    stage.register(1, log_dirs=[stage.unique()])
    stage.beat(1)
    assert (partition.leader, partition.last_known_leader) == (-1, [])
    stage.recover({2: 3})
    assert (partition.leader, partition.isr) == (2, [2])


def test_reports_count_for_the_broker_epoch_and_the_leader_epoch_that_they_are_of() -> None:
    stage = Stage(2)
    partition = crashed(stage, 1, 2)
    stage.beat(1)
    stage.beat(2)
    good = stage.reports(partition, {1: 5})

    def outcome(**changes: int) -> tuple[int | None, dict[int, str]]:
        reports = {**good, 1: good[1]._replace(**changes)}  # type: ignore[arg-type]
        recovery = recover(stage.image, stage.policy, partition, Strategy.BALANCED, reports)
        return recovery.elected and recovery.elected.broker, dict(recovery.waiting_for)

    assert outcome() == (1, {})
    assert outcome(broker_epoch=good[1].broker_epoch - 1) == (None, {1: "no report yet"})
    assert outcome(leader_epoch=partition.leader_epoch - 1) == (None, {1: "no report yet"})
    reports: dict[int, ReplicaReport | ErrorCode] = {**good, 1: ErrorCode.KAFKA_STORAGE_ERROR}
    recovery = recover(stage.image, stage.policy, partition, Strategy.BALANCED, reports)
    assert (recovery.record, dict(recovery.waiting_for)) == (None, {1: "KAFKA_STORAGE_ERROR"})


def test_an_aggressive_recovery_queries_every_replica_that_is_up() -> None:
    stage = Stage(3)
    partition = crashed(stage, 1, 2, 3, unclean=True)
    stage.beat(1)
    stage.beat(2)
    reports = stage.reports(partition, {2: 4, 3: 9})

    def elected(*nodes: int, patient: bool = True) -> int | None:
        given = {node: reports[node] for node in nodes}
        recovery = recover(stage.image, stage.policy, partition, Strategy.AGGRESSIVE, given, patient=patient)
        return recovery.elected and recovery.elected.broker

    assert elected(1) is None
    assert elected(1, patient=False) == 1
    assert elected(1, 2) == 2
    assert elected(patient=False) is None
    stage.recover({2: 4, 3: 9})
    assert (partition.leader, partition.isr) == (2, [2])


def test_without_a_strategy_an_operator_decides() -> None:
    stage = Stage(2)
    partition = crashed(stage, 1, 2)
    stage.commit(config_records(stage.image, (TOPIC, "t"), {MIN_ISR: "2", UNCLEAN_RECOVERY: "none"}))
    stage.beat(1)
    assert stage.recover() == {2: "the broker is not up"}
    stage.beat(2)
    assert stage.recover() == dict.fromkeys((1, 2), "an operator's election")
    assert partition.leader == -1


def test_a_partition_waits_for_its_eligible_replicas_unless_it_is_aggressive() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    assert strategy_for(stage.image, stage.policy, partition) is None
    stage.fence(2, 1)
    stage.register(2)
    stage.beat(2)
    assert (partition.leader, partition.elr) == (-1, [1])
    assert strategy_for(stage.image, stage.policy, partition) is None
    stage.commit(config_records(stage.image, (TOPIC, "t"), {MIN_ISR: "2", UNCLEAN_RECOVERY: "aggressive"}))
    assert strategy_for(stage.image, stage.policy, partition) is Strategy.AGGRESSIVE


@pytest.mark.parametrize(
    ("topic", "cluster", "file", "strategy"),
    [
        ({}, {}, Policy(), Strategy.BALANCED),
        ({}, {}, Policy(unclean_recovery=Strategy.NONE), Strategy.NONE),
        ({}, {}, Policy(unclean_leader_election=True), Strategy.AGGRESSIVE),
        ({UNCLEAN: "TRUE"}, {}, Policy(), Strategy.AGGRESSIVE),
        ({UNCLEAN: "false"}, {UNCLEAN: "true"}, Policy(unclean_leader_election=True), Strategy.BALANCED),
        ({UNCLEAN_RECOVERY: "none"}, {UNCLEAN: "true"}, Policy(), Strategy.NONE),
        ({UNCLEAN_RECOVERY: "none", UNCLEAN: "true"}, {}, Policy(), Strategy.AGGRESSIVE),
        ({}, {UNCLEAN_RECOVERY: "aggressive"}, Policy(), Strategy.AGGRESSIVE),
    ],
)
def test_strategies(topic: dict[str, str], cluster: dict[str, str], file: Policy, strategy: Strategy) -> None:
    stage = Stage(1)
    stage.topic("t", [1], min_isr=1)
    stage.commit(config_records(stage.image, (TOPIC, "t"), topic))
    stage.commit(config_records(stage.image, (BROKER, ""), {MIN_ISR: "1", **cluster}))
    assert file.strategy(stage.image, "t") is strategy
    assert file.unclean(stage.image, "t") is (strategy is Strategy.AGGRESSIVE)
