"""AlterPartition (KIP-497, 841, 903): every reason to refuse, and what an accepted ISR does."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.metadata.alter_partition import alter_partition
from penstock.metadata.image import RECOVERED, RECOVERING
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerState,
)
from tests.metadata.stage import Stage


def test_an_isr_shrinks_and_grows_in_one_leader_epoch() -> None:
    stage = Stage(3)
    partition = stage.topic("t", [1, 2, 3])

    answer = stage.alter(partition, [1, 3])
    assert (answer.error_code, answer.isr, answer.leader_id) == (0, [1, 3], 1)
    assert (answer.leader_epoch, answer.partition_epoch) == (0, 1)
    assert (partition.isr, partition.leader_epoch, partition.partition_epoch) == ([1, 3], 0, 1)

    stage.alter(partition, [1, 3, 2])
    assert (partition.isr, partition.partition_epoch) == ([1, 3, 2], 2)


def test_a_request_for_the_current_state_changes_nothing() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    offset = stage.image.offset
    answer = stage.alter(partition, [1, 2])
    assert (answer.error_code, answer.partition_epoch, stage.image.offset) == (0, 0, offset)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": 2}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"sender": 3}, ErrorCode.INVALID_REQUEST),
        ({"partition_index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"isr": [2, 4]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [2, 2]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [3]}, ErrorCode.INVALID_REQUEST),
        ({"isr": []}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": RECOVERING, "isr": [2]}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
        # 1 is fenced
        ({"isr": [2, 1]}, ErrorCode.INELIGIBLE_REPLICA),
    ],
    ids=str,
)
def test_invalid_isr_changes_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(1)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (2, 1, 1)
    offset = stage.image.offset

    answer = stage.alter(partition, changes.pop("isr", [2]), **changes)

    assert (answer.error_code, stage.image.offset) == (code, offset)


def test_the_isr_takes_only_the_incarnation_that_the_leader_saw() -> None:
    """KIP-903: a follower that was restarted may have lost what its predecessor had."""
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    seen = stage.epoch(2)
    stage.register(2)
    stage.beat(2)
    own = BrokerState(broker_id=1, broker_epoch=stage.epoch(1))

    stale = stage.alter(partition, [], new_isr_with_epochs=[own, BrokerState(broker_id=2, broker_epoch=seen)])
    unknown = stage.alter(partition, [], new_isr_with_epochs=[own, BrokerState(broker_id=2)])

    assert (stale.error_code, unknown.error_code) == (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NONE)


def test_version_2_has_no_epochs() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    answer = stage.alter(partition, [], new_isr=[1])
    assert (answer.error_code, partition.isr) == (0, [1])


def test_a_broker_that_shuts_down_is_not_taken_in_again() -> None:
    """KIP-841."""
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    stage.topic("led", [2, 1])
    stage.beat(2, stop=True, lowest=0)
    assert partition.isr == [1]
    assert stage.alter(partition, [1, 2]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_recovering_leader_stays_alone_until_it_reports_the_end_of_its_recovery() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2], min_isr=1, unclean=True)
    stage.alter(partition, [1])
    stage.fence(1)
    stage.recover()
    stage.beat(1)
    assert (partition.leader, partition.leader_recovery) == (2, RECOVERING)

    assert stage.alter(partition, [2, 1]).error_code == ErrorCode.INVALID_REQUEST
    answer = stage.alter(partition, [2, 1], leader_recovery_state=RECOVERED)

    assert (answer.error_code, answer.leader_recovery_state) == (0, RECOVERED)
    assert (partition.leader_recovery, partition.isr) == (RECOVERED, [2, 1])


def test_a_replaced_leader_and_an_unknown_topic() -> None:
    stage = Stage(1)
    partition = stage.topic("t", [1])
    wanted = AlterPartitionRequestPartition(new_isr=[1])
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=stage.epoch(1),
        topics=[AlterPartitionRequestTopic(topic_id=bytes([1] * 16), partitions=[wanted])],
    )
    _, response = alter_partition(stage.image, stage.policy, request)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    request.broker_epoch -= 1
    with pytest.raises(ApiError) as refused:
        alter_partition(stage.image, stage.policy, request)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert partition.isr == [1]


def test_a_partition_named_twice_is_altered_once() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    wanted = [AlterPartitionRequestPartition(new_isr=[1]), AlterPartitionRequestPartition(new_isr=[1, 2])]
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=stage.epoch(1),
        topics=[AlterPartitionRequestTopic(topic_id=partition.topic_id, partitions=wanted)],
    )

    records, response = alter_partition(stage.image, stage.policy, request)

    assert [p.error_code for p in response.topics[0].partitions] == [0, ErrorCode.INVALID_UPDATE_VERSION]
    assert len(records) == 1


def test_the_response_names_the_end_of_the_requesters_leadership() -> None:
    stage = Stage(3)
    partition = stage.topic("t", [1, 2])
    stage.reassign({0: [3, 2]})
    assert (partition.replicas, partition.leader) == ([3, 2, 1], 1)

    answer = stage.alter(partition, [1, 2, 3])

    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert (partition.replicas, partition.isr, partition.leader) == ([3, 2], [2, 3], 3)
    assert (partition.adding, partition.removing) == ([], [])
