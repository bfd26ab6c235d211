"""Brokers that register, come up, are fenced, shut down and leave."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.metadata.brokers import (
    check_broker_epoch,
    fence_broker,
    heartbeat,
    register_controller,
    unregister_broker,
)
from penstock.metadata.image import RECOVERING, PartitionImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.steps import at_once
from penstock.wire.apis.broker_heartbeat import BrokerHeartbeatRequest, TopicWithoutRoom, UncleanTopic
from penstock.wire.apis.controller_registration import ControllerRegistrationRequest
from penstock.wire.apis.endpoints import Feature, Listener
from penstock.wire.metadata_records import BrokerRegistrationChangeRecord, FeatureLevelRecord
from penstock.wire.schema import Struct
from tests.metadata.stage import Stage

OLD = Feature(name="metadata.version", min_supported_version=1, max_supported_version=29)


def test_a_broker_is_fenced_until_it_has_read_its_own_registration() -> None:
    """KIP-631; the epoch of a broker is the offset of its registration."""
    stage = Stage()
    stage.register(1)
    broker = stage.image.brokers[1]
    assert (broker.fenced, broker.epoch) == (True, stage.image.offset)

    behind = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=broker.epoch, current_metadata_offset=broker.epoch - 1
    )
    records, answer = at_once(heartbeat(stage.image, stage.policy, behind, 0))
    assert (records, answer.is_caught_up, answer.is_fenced) == ([], False, True)

    answer = stage.beat(1)
    assert (answer.is_caught_up, answer.is_fenced, stage.image.brokers[1].fenced) == (True, False, False)
    assert stage.beat(1).is_fenced is False


def test_another_incarnation_waits_for_the_session_of_the_first_to_end() -> None:
    stage = Stage(1)
    with pytest.raises(ApiError) as refused:
        stage.register(1, alive=True)
    assert refused.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION

    before = stage.image.brokers[1].epoch
    stage.register(1, alive=False)
    assert stage.image.brokers[1].epoch > before


def test_an_incarnation_that_registers_again_keeps_its_epoch_and_stays_up() -> None:
    stage = Stage(1)
    incarnation, epoch = stage.image.brokers[1].incarnation, stage.image.brokers[1].epoch
    partition = stage.topic("t", [1], min_isr=1)

    stage.register(1, alive=True, incarnation_id=incarnation, rack="moved")

    broker = stage.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.rack, partition.leader) == (epoch, False, "moved", 1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes([9] * 16)] * 2}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [bytes(15) + b"\x02"]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [(10_001).to_bytes(16, "big")]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        (
            {
                "features": [
                    Feature(name="metadata.version", min_supported_version=1, max_supported_version=29)
                ]
            },
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
    ids=str,
)
def test_registrations_that_do_not_fit_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    stage = Stage(1)
    offset = stage.image.offset
    with pytest.raises(ApiError) as refused:
        stage.register(2, **changes)
    assert (refused.value.code, stage.image.offset) == (code, offset)


def test_a_fenced_broker_leads_nothing_and_is_in_no_isr() -> None:
    stage = Stage(3)
    led = stage.topic("led", [1, 2, 3])
    followed = stage.topic("followed", [2, 1, 3])
    elsewhere = stage.topic("elsewhere", [2, 3])

    stage.fence(1)

    assert (led.leader, led.isr, led.leader_epoch, led.partition_epoch) == (2, [2, 3], 1, 1)
    assert (followed.leader, followed.isr, followed.leader_epoch, followed.partition_epoch) == (
        2,
        [2, 3],
        0,
        1,
    )
    assert elsewhere.partition_epoch == 0
    assert stage.image.brokers[1].fenced
    before = stage.image.offset
    stage.fence(1)
    assert stage.image.offset == before


def test_a_broker_that_comes_up_leads_leaderless_partitions() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1], min_isr=1)
    stage.fence(1)
    assert (partition.leader, partition.isr, partition.elr) == (-1, [], [1])

    stage.beat(1)

    assert (partition.leader, partition.isr, partition.elr) == (1, [1], [])
    assert partition.last_known_leader == []


def test_only_a_clean_stop_keeps_a_replica_an_eligible_leader() -> None:
    """KIP-966: a broker that knows its previous epoch shut down cleanly."""
    for clean, elr in ((True, [2]), (False, [])):
        stage = Stage(2)
        partition = stage.topic("t", [1, 2])
        stage.fence(2)
        assert (partition.isr, partition.elr) == ([1], [2])

        stage.register(2, clean=clean)

        assert (partition.isr, partition.elr) == ([1], elr)


def test_the_epoch_of_another_incarnation_is_no_proof_of_a_clean_stop() -> None:
    """Voters that were rolled back may give the offset, and so the epoch, to another registration."""
    for incarnation, elr in ((b"other" + bytes(11), []), (bytes(16), [2])):
        stage = Stage(2)
        partition = stage.topic("t", [1, 2])
        stage.fence(2)

        # A manifest of an earlier release has no incarnation.
        stage.register(2, clean=True, previous_incarnation_id=incarnation)

        assert (partition.isr, partition.elr) == ([1], elr)


def test_a_restart_before_the_session_ended_takes_the_broker_out_of_the_isr() -> None:
    for clean, elr in ((True, [2]), (False, [])):
        stage = Stage(2)
        partition = stage.topic("t", [1, 2])

        stage.register(2, clean=clean)

        assert (partition.isr, partition.elr, stage.image.brokers[2].fenced) == ([1], elr, True)


def test_the_last_known_leader_returns_without_better_candidates_and_is_marked_as_recovering() -> None:
    stage = Stage(1)
    partition = stage.topic("t", [1], min_isr=1)
    stage.fence(1)
    stage.register(1)
    assert (partition.leader, partition.elr, partition.last_known_leader) == (-1, [], [1])

    stage.beat(1)

    assert (partition.leader, partition.isr, partition.leader_recovery) == (1, [1], RECOVERING)
    assert partition.last_known_leader == []


@pytest.mark.parametrize("fenced", [True, False])
def test_the_last_known_leader_does_not_lead_when_it_returns_on_empty_disks(fenced: bool) -> None:
    """The others would cut all that they have, which is nearly everything."""
    stage = Stage(2)
    partition = stage.topic("t", [1, 2], min_isr=1)
    stage.fence(2)
    if fenced:
        stage.fence(1)
    stage.register(1, log_dirs=[stage.unique()])
    assert (partition.leader, partition.isr, partition.elr, partition.last_known_leader) == (-1, [], [], [])
    stage.beat(1)
    assert partition.leader == -1


def test_the_only_replica_leads_though_its_disks_are_empty() -> None:
    stage = Stage(1)
    partition = stage.topic("t", [1], min_isr=1)
    stage.fence(1)
    stage.register(1, log_dirs=[stage.unique()])
    stage.beat(1)
    assert partition.leader == 1


def test_a_shutdown_moves_leaders_first_and_is_granted_when_all_have_read_of_it() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2], min_isr=1)

    answer = stage.beat(1, stop=True, lowest=0)
    reported = stage.image.offset
    assert (partition.leader, partition.isr) == (2, [2])
    assert (answer.should_shut_down, answer.is_fenced) == (False, False)
    assert stage.image.brokers[1].in_controlled_shutdown

    assert not stage.beat(1, stop=True, lowest=reported - 1).should_shut_down
    answer = stage.beat(1, stop=True, lowest=reported)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert stage.image.brokers[1].fenced
    assert stage.beat(1, stop=True).should_shut_down
    # It has said that it goes: only another incarnation comes back.
    assert stage.beat(1).is_fenced


def test_a_broker_without_leaderships_may_stop_at_once_and_may_request_its_fencing() -> None:
    stage = Stage(2)
    assert stage.beat(1, stop=True, lowest=0).should_shut_down
    answer = stage.beat(2, fence=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, False)
    assert stage.beat(2, fence=True).is_fenced


def test_a_stale_broker_epoch_is_refused() -> None:
    stage = Stage(1)
    epoch = stage.image.brokers[1].epoch
    assert check_broker_epoch(stage.image, 1, epoch).id == 1
    for node, stale in ((1, epoch - 1), (2, epoch)):
        with pytest.raises(ApiError) as refused:
            check_broker_epoch(stage.image, node, stale)
        assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_an_unregistered_broker_is_in_no_isr_and_not_eligible() -> None:
    stage = Stage(3)
    led = stage.topic("led", [1, 2])
    eligible = stage.topic("eligible", [2, 1])
    stage.alter(eligible, [2])
    assert eligible.elr == [1]

    stage.commit(at_once(unregister_broker(stage.image, stage.policy, 1)))

    assert (led.leader, led.isr, led.elr, eligible.isr, eligible.elr) == (2, [2], [], [2], [])
    assert 1 not in stage.image.brokers
    with pytest.raises(ApiError) as refused:
        at_once(unregister_broker(stage.image, stage.policy, 1))
    assert refused.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_broker_that_is_up_is_not_forgotten_with_the_last_in_sync_replica() -> None:
    stage = Stage(3)
    led = stage.topic("led", [1, 2])
    alone = stage.topic("alone", [1])
    stage.commit(at_once(unregister_broker(stage.image, stage.policy, 2)))

    with pytest.raises(ApiError, match=r"has the last in-sync replica of led-0") as refused:
        at_once(unregister_broker(stage.image, stage.policy, 1))
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert (led.leader, led.isr, alone.leader) == (1, [1], 1)

    stage.commit(at_once(fence_broker(stage.image, stage.policy, 1)))
    stage.commit(at_once(unregister_broker(stage.image, stage.policy, 1)))
    assert 1 not in stage.image.brokers


def test_fencing_looks_at_the_brokers_own_partitions_only() -> None:
    stage = Stage(3)
    stage.topic("t", [1, 2], [2, 3], [3, 1])
    held = [partition.index for partition in stage.image.partitions_on(1)]
    assert held == [0, 2]
    stage.reassign({0: [3, 2], 1: [1, 3]})
    # Until the new replicas are in the ISR the old are kept beside them.
    assert sorted(partition.index for partition in stage.image.partitions_on(1)) == [0, 1, 2]
    stage.alter(stage.partition("t", 0), [1, 2, 3])
    assert sorted(partition.index for partition in stage.image.partitions_on(1)) == [1, 2]


def test_controllers_register() -> None:
    stage = Stage()
    request = ControllerRegistrationRequest(
        controller_id=7,
        incarnation_id=bytes([7] * 16),
        listeners=[Listener(name="INTERNAL", host="h", port=9, security_protocol=1)],
        features=[Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)],
    )
    stage.commit(register_controller(request))

    controller = stage.image.controllers[7]
    assert (controller.endpoints, controller.protocols) == ({"INTERNAL": ("h", 9)}, {"INTERNAL": 1})
    assert controller.features == {"metadata.version": (7, 30)}


def _directories(*numbers: int) -> list[bytes]:
    return [(20_000 + number).to_bytes(16, "big") for number in numbers]


def _report(stage: Stage, node: int, offline: list[bytes]) -> bool:
    """Whether a heartbeat that names failed directories changes anything."""
    request = BrokerHeartbeatRequest(
        broker_id=node,
        broker_epoch=stage.epoch(node),
        current_metadata_offset=stage.image.offset,
        offline_log_dirs=offline,
    )
    records, _ = at_once(heartbeat(stage.image, stage.policy, request, 0))
    stage.commit(records)
    return bool(records)


def test_leaders_move_away_from_failed_directories() -> None:
    """KIP-858; what is in healthy directories joins again, by its leader's wish."""
    stage = Stage(2)
    stage.register(3, log_dirs=_directories(1, 2))
    stage.beat(3)
    led, followed, alone = (
        stage.topic("led", [3, 1, 2]),
        stage.topic("followed", [1, 3]),
        stage.topic("alone", [3]),
    )
    assert _report(stage, 3, _directories(2))
    assert (led.leader, led.isr, followed.leader, followed.isr) == (1, [1, 2], 1, [1])
    assert 3 not in (*led.elr, *followed.elr), "its remaining records are unknown"
    assert (alone.leader, alone.isr) == (3, [3]), "no other replica could"
    broker = stage.image.brokers[3]
    assert (broker.log_directories, broker.fenced) == (_directories(1), False)
    assert not _report(stage, 3, _directories(2)), "once is enough"
    stage.alter(followed, [1, 3])
    assert followed.isr == [1, 3]


def test_an_eligible_leader_takes_over_from_a_failed_directory_and_an_unclean_one_does_not() -> None:
    stage = Stage(2)
    stage.register(3, log_dirs=_directories(1, 2))
    stage.beat(3)
    eligible, unclean = (
        stage.topic("eligible", [3, 2, 1], min_isr=2),
        stage.topic("unclean", [3, 2], min_isr=1, unclean=True),
    )
    stage.alter(eligible, [3, 2])
    stage.alter(eligible, [3])
    stage.alter(unclean, [3])
    assert (eligible.isr, eligible.elr, unclean.elr) == ([3], [2], [])

    assert _report(stage, 3, _directories(2))

    assert (eligible.leader, eligible.isr) == (2, [2])
    assert (unclean.leader, unclean.isr) == (3, [3]), "the replica may be well"


def _report_full(stage: Stage, node: int, *partitions: PartitionImage) -> bool:
    """Whether a heartbeat that names replicas without room changes anything."""
    request = BrokerHeartbeatRequest(
        broker_id=node,
        broker_epoch=stage.epoch(node),
        current_metadata_offset=stage.image.offset,
        without_room=[TopicWithoutRoom(topic_id=p.topic_id, partitions=[p.index]) for p in partitions],
    )
    records, _ = at_once(heartbeat(stage.image, stage.policy, request, 0))
    stage.commit(records)
    return bool(records)


def test_replicas_on_a_full_disk_lead_nothing_and_are_out_of_sync_where_others_are_in_it() -> None:
    stage = Stage(3)
    led, followed, elsewhere = (
        stage.topic("led", [3, 1, 2]),
        stage.topic("followed", [1, 3], min_isr=2),
        stage.topic("elsewhere", [3, 2]),
    )
    assert _report_full(stage, 3, led, followed)
    assert (led.leader, led.isr) == (1, [1, 2])
    assert (followed.leader, followed.isr, followed.elr) == (1, [1], [3]), "it has lost nothing"
    assert (elsewhere.leader, elsewhere.isr) == (3, [3, 2]), "in a directory that has room"
    assert not stage.image.brokers[3].fenced
    assert not _report_full(stage, 3, led, followed)


def test_the_last_in_sync_leads_on_though_its_disk_is_full() -> None:
    """What it has can be read; and of two full disks neither hands over to the other for ever."""
    stage = Stage(2)
    partition = stage.topic("t", [1, 2], min_isr=2)
    assert _report_full(stage, 1, partition)
    assert (partition.leader, partition.isr, partition.elr) == (2, [2], [1])
    assert not _report_full(stage, 2, partition)
    assert not _report_full(stage, 1, partition)
    assert (partition.leader, partition.isr) == (2, [2])


def test_replicas_that_the_controller_does_not_know_change_nothing() -> None:
    stage = Stage(2)
    stage.topic("t", [1, 2])
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=stage.epoch(1),
        current_metadata_offset=stage.image.offset,
        without_room=[
            TopicWithoutRoom(topic_id=bytes(16), partitions=[0]),
            TopicWithoutRoom(topic_id=stage.image.topics["t"].id, partitions=[9]),
        ],
    )
    assert at_once(heartbeat(stage.image, stage.policy, request, 0))[0] == []


def test_a_broker_without_any_directory_left_is_fenced_until_it_has_one() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    (directory,) = stage.image.brokers[1].log_directories
    assert _report(stage, 1, [directory])
    assert stage.image.brokers[1].fenced
    assert (partition.leader, partition.isr) == (2, [2])
    assert not _report(stage, 1, [directory])
    assert stage.image.brokers[1].fenced
    stage.register(1)
    stage.beat(1)
    assert not stage.image.brokers[1].fenced


def _report_unclean(stage: Stage, node: int, *partitions: PartitionImage) -> bool:
    """Report replicas that may lack records; returns whether the broker is fenced after that heartbeat."""
    request = BrokerHeartbeatRequest(
        broker_id=node,
        broker_epoch=stage.epoch(node),
        current_metadata_offset=stage.image.offset,
        unclean_replicas=[UncleanTopic(topic_id=p.topic_id, partitions=[p.index]) for p in partitions],
    )
    records, answer = at_once(heartbeat(stage.image, stage.policy, request, 0))
    stage.commit(records)
    assert answer.is_fenced == stage.image.brokers[node].fenced
    return answer.is_fenced


def test_unclean_replicas_are_excluded_before_their_broker_is_unfenced() -> None:
    """After a clean restart a replica may lead, unless its log is not what it was."""
    stage = Stage(2)
    unclean, clean = stage.topic("unclean", [1, 2]), stage.topic("clean", [1, 2])
    stage.fence(2, 1)
    stage.register(1, clean=True)
    assert (unclean.elr, unclean.last_known_leader) == ([2, 1], [1])

    assert _report_unclean(stage, 1, unclean), "nothing but that happens in the same heartbeat"
    assert (unclean.leader, unclean.elr, unclean.last_known_leader) == (-1, [2], [])

    assert not _report_unclean(stage, 1, unclean), "a heartbeat that is repeated excludes nothing more"
    assert (unclean.leader, unclean.elr) == (-1, [2])
    assert (clean.leader, clean.isr) == (1, [1])
    stage.register(2, clean=True)
    stage.beat(2)
    assert (unclean.leader, unclean.isr, unclean.leader_recovery) == (2, [2], 0)


def test_an_unclean_replica_of_a_broker_that_is_up_hands_its_leadership_over() -> None:
    stage = Stage(3)
    led, followed, alone = (
        stage.topic("led", [3, 1, 2]),
        stage.topic("followed", [1, 3]),
        stage.topic("alone", [3, 1], min_isr=1),
    )
    stage.alter(alone, [3])

    assert not _report_unclean(stage, 3, led, followed, alone)

    assert (led.leader, led.isr, led.elr) == (1, [1, 2], [])
    assert (followed.leader, followed.isr, followed.elr) == (1, [1], []), (
        "below the minimum, and not eligible"
    )
    assert (alone.leader, alone.isr) == (3, [3]), "the other replica has less"


def test_an_unclean_leader_gives_way_to_an_eligible_replica() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    stage.alter(partition, [1])
    assert (partition.isr, partition.elr) == ([1], [2])

    assert not _report_unclean(stage, 1, partition)

    assert (partition.leader, partition.isr, partition.elr) == (2, [2], [])


def test_an_only_replica_leads_though_it_is_unclean() -> None:
    stage = Stage(1)
    partition = stage.topic("t", [1], min_isr=1)
    stage.register(1, clean=True)
    assert _report_unclean(stage, 1, partition)
    assert not _report_unclean(stage, 1)
    assert (partition.leader, partition.leader_recovery) == (1, RECOVERING)


def test_a_heartbeat_changes_the_cordoned_directories_once() -> None:
    """KIP-1066, from 4.3-IV0 on."""
    stage = Stage()
    stage.register(1, log_dirs=[b"a" * 16, b"b" * 16])
    stage.beat(1)

    def beat(*cordoned: bytes) -> list[Struct]:
        request = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=stage.epoch(1),
            current_metadata_offset=stage.image.offset,
            cordoned_log_dirs=list(cordoned),
        )
        records, _ = at_once(heartbeat(stage.image, stage.policy, request, -1))
        stage.commit(records)
        return records

    stage.commit([FeatureLevelRecord(name="metadata.version", feature_level=29)])
    assert beat(b"a" * 16) == []
    stage.commit([FeatureLevelRecord(name="metadata.version", feature_level=30)])
    (record,) = beat(b"a" * 16, b"unknown directory")
    assert isinstance(record, BrokerRegistrationChangeRecord)
    assert (record.cordoned_log_dirs, record.fenced) == ([b"a" * 16], 0)
    assert stage.image.brokers[1].cordoned == [b"a" * 16]
    assert beat(b"a" * 16) == []
    assert len(beat()) == 1
    assert stage.image.brokers[1].cordoned == []
