"""How long brokers count as gone."""

from __future__ import annotations

from penstock.metadata.absences import Absences
from penstock.metadata.brokers import unregister_broker
from penstock.metadata.snapshot import image_of_snapshot, snapshot
from penstock.model.steps import at_once
from penstock.wire.metadata_records import PartitionChangeRecord
from tests.metadata.stage import Stage


def observe(stage: Stage, absences: Absences, now_ms: float) -> dict[int, float]:
    absences.observed(stage.image, now_ms)
    return absences.gone(now_ms)


def test_a_broker_is_gone_from_the_moment_that_it_is_fenced() -> None:
    stage, absences = Stage(3), Absences()
    assert observe(stage, absences, 100) == {}
    stage.fence(2)
    assert observe(stage, absences, 1000) == {2: 0}
    assert observe(stage, absences, 4000) == {2: 3000}


def test_a_return_between_two_observations_starts_the_time_anew() -> None:
    stage, absences = Stage(3), Absences()
    stage.fence(2)
    observe(stage, absences, 0)
    stage.beat(2)
    stage.fence(2)
    assert observe(stage, absences, 9000) == {2: 0}


def test_a_broker_that_registers_and_does_not_come_up_stays_gone() -> None:
    stage, absences = Stage(3), Absences()
    stage.fence(2)
    observe(stage, absences, 0)
    for now_ms in (1000, 2000):
        stage.register(2)
        assert observe(stage, absences, now_ms) == {2: now_ms}
    stage.beat(2)
    assert observe(stage, absences, 3000) == {}


def test_a_controller_that_has_just_started_counts_absences_from_its_start() -> None:
    """Also after a restart of the whole cluster: the log says which brokers are fenced, not for how long."""
    stage = Stage(3)
    stage.fence(2)
    observe(stage, Absences(), 0)
    assert observe(stage, Absences(), 1_000_000) == {2: 0}


def test_a_snapshot_may_hide_a_return() -> None:
    stage, absences = Stage(3), Absences()
    stage.fence(2)
    observe(stage, absences, 0)
    stage.image = image_of_snapshot(snapshot(stage.image), stage.image.offset + 10)
    assert observe(stage, absences, 5000) == {2: 0}


def test_an_unregistered_broker_is_gone_while_it_has_replicas() -> None:
    stage, absences = Stage(3), Absences()
    stage.topic("t", [1, 2])
    stage.fence(3)
    stage.commit(at_once(unregister_broker(stage.image, stage.policy, 2)))
    stage.commit(at_once(unregister_broker(stage.image, stage.policy, 3)))
    assert observe(stage, absences, 0) == {2: 0}
    assert observe(stage, absences, 10) == {2: 10}


def test_the_healer_rests_while_no_broker_or_reassignment_changes() -> None:
    stage, absences = Stage(4), Absences()
    stage.topic("t", [1, 2])
    observe(stage, absences, 0)
    assert absences.quiet_ms(50) == 50
    stage.reassign({0: [1, 3]})
    observe(stage, absences, 100)
    stage.reassign({0: None})
    observe(stage, absences, 150)
    assert absences.quiet_ms(300) == 150
    stage.fence(4)
    observe(stage, absences, 400)
    assert absences.quiet_ms(400) == 0


def test_changes_of_partitions_alone_cost_no_look_at_brokers() -> None:
    stage, absences = Stage(3), Absences()
    partition = stage.topic("t", [1, 2])
    observe(stage, absences, 0)
    membership = stage.image.membership
    stage.alter(partition, [1])
    assert stage.image.membership is membership
    stage.fence(2)
    assert stage.image.membership is not membership
    assert observe(stage, absences, 500) == {2: 0}


def test_a_broker_that_is_not_registered_counts_as_gone_with_its_first_replica() -> None:
    stage, absences = Stage(3), Absences()
    partition = stage.topic("t", [1, 2])
    stage.commit(at_once(unregister_broker(stage.image, stage.policy, 3)))
    assert observe(stage, absences, 0) == {}
    change = PartitionChangeRecord(
        topic_id=partition.topic_id, partition_id=0, replicas=[1, 2, 3], adding_replicas=[3]
    )
    stage.commit([change])
    assert observe(stage, absences, 1000) == {3: 0}
    assert observe(stage, absences, 4000) == {3: 3000}
