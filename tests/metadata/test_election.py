"""Elections: the order of candidates, the eligible leaders of KIP-966, and elections on demand."""

from __future__ import annotations

import pytest

from penstock.metadata import election
from penstock.metadata.configs import config_records
from penstock.metadata.elect_leaders import (
    ElectionType,
    elect_leader,
    elect_leaders,
    partitions_to_recover,
)
from penstock.metadata.election import balance_leaders
from penstock.metadata.image import BROKER, RECOVERED, RECOVERING, TOPIC
from penstock.metadata.policy import MIN_ISR, UNCLEAN, Policy
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.steps import at_once
from penstock.wire.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.metadata.stage import Stage


def test_a_replica_that_leaves_an_isr_below_the_minimum_stays_eligible() -> None:
    """KIP-966: nothing is acknowledged below the minimum, so a replica that left then has everything."""
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3, 4], min_isr=3)

    seen = []
    for node in (4, 3, 2):
        stage.fence(node)
        seen.append((partition.isr, partition.elr))
    assert seen == [([1, 2, 3], []), ([1, 2], [3]), ([1], [3, 2])]

    stage.beat(2)
    stage.alter(partition, [1, 2])
    assert (partition.isr, partition.elr) == ([1, 2], [3])
    stage.beat(4)
    # Any replica may come back, and an ISR with the minimum needs no eligible leaders.
    stage.alter(partition, [1, 2, 4])
    assert (partition.isr, partition.elr) == ([1, 2, 4], [])


def test_without_an_isr_an_eligible_replica_leads_and_is_in_sync_alone() -> None:
    stage = Stage(3)
    partition = stage.topic("t", [1, 2, 3])
    stage.fence(3, 2, 1)
    assert (partition.leader, partition.isr, partition.elr) == (-1, [], [2, 1])
    assert partition.last_known_leader == [1]

    # 3 left while there were enough others: it may lack what they acknowledged.
    stage.beat(3)
    assert partition.leader == -1
    stage.beat(2)
    assert (partition.leader, partition.isr, partition.elr) == (2, [2], [1])
    assert (partition.leader_recovery, partition.last_known_leader) == (RECOVERED, [])


def test_a_partition_stays_without_a_leader_rather_than_lose_records() -> None:
    stage = Stage(2)
    strict = stage.topic("strict", [1, 2], min_isr=1)
    lenient = stage.topic("lenient", [1, 2], min_isr=1, unclean=True)
    for partition in (strict, lenient):
        stage.alter(partition, [1])

    stage.fence(1)
    stage.recover()

    assert (strict.leader, strict.isr, strict.elr, strict.leader_recovery) == (-1, [], [1], RECOVERED)
    assert (lenient.leader, lenient.isr, lenient.elr, lenient.leader_recovery) == (2, [2], [], RECOVERING)


def test_an_unclean_leader_is_elected_once_the_topic_allows_it() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2], min_isr=1)
    stage.alter(partition, [1])
    stage.fence(1)
    stage.recover()
    assert partition.leader == -1

    stage.commit(config_records(stage.image, (TOPIC, "t"), {MIN_ISR: "1", UNCLEAN: "TRUE"}))
    stage.recover()

    assert (partition.leader, partition.leader_recovery) == (2, RECOVERING)


def test_the_cluster_can_be_lenient_by_default() -> None:
    stage = Stage(2, Policy(unclean_leader_election=True))
    partition = stage.topic("t", [1, 2])
    stage.alter(partition, [1])
    stage.fence(1)
    stage.recover()
    assert partition.leader == 2


def test_the_last_leader_does_not_return_while_there_is_an_eligible_one_to_wait_for() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    stage.fence(2, 1)
    stage.register(1)
    stage.beat(1)
    assert (partition.leader, partition.elr, partition.last_known_leader) == (-1, [2], [1])
    stage.beat(2)
    assert (partition.leader, partition.isr) == (2, [2])


def test_the_last_leader_does_not_return_when_it_is_no_longer_a_replica() -> None:
    stage = Stage(4)
    partition = stage.topic("t", [1, 2], min_isr=1, unclean=True)
    stage.reassign({0: [3, 4]})
    stage.alter(partition, [1, 3])
    stage.fence(1, 2)
    assert partition.leader == 3

    stage.reassign({0: None})
    stage.recover({3: 9})

    assert (partition.replicas, partition.leader, partition.last_known_leader) == ([1, 2], -1, [3])


@pytest.mark.parametrize("resource", [(TOPIC, "t"), (BROKER, "")], ids=str)
def test_another_minimum_leaves_no_eligible_leaders(resource: tuple[int, str]) -> None:
    """With a lower minimum the ISR may have acknowledged what those outside it lack."""
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    other = stage.topic("u", [1, 2])
    stage.fence(2)
    assert partition.elr == other.elr == [2]

    stage.commit(config_records(stage.image, resource, {MIN_ISR: "1"}))

    assert partition.elr == []
    assert other.elr == ([2] if resource[0] == TOPIC else [])
    assert not any("Clear" in type(r).__name__ for r in config_records(stage.image, resource, {MIN_ISR: "1"}))


@pytest.mark.parametrize("resource", [(TOPIC, "t"), (BROKER, "")], ids=str)
@pytest.mark.parametrize(("minimum", "eligible"), [("1", []), ("3", [1])])
def test_a_changed_minimum_keeps_eligible_replicas_of_a_leaderless_partition(
    resource: tuple[int, str], minimum: str, eligible: list[int]
) -> None:
    """Without a leader nothing is acknowledged by any minimum, and no other replica could ever lead."""
    stage = Stage(3)
    partition = stage.topic("t", [1, 2, 3])
    alone = stage.topic("u", [2])
    stage.fence(3, 2, 1)
    assert (partition.leader, partition.elr) == (-1, [2, 1])

    stage.commit(config_records(stage.image, resource, {MIN_ISR: minimum}))
    stage.beat(2)

    assert (partition.leader, partition.isr, partition.elr) == (2, [2], eligible)
    assert (alone.leader, alone.leader_recovery) == (2, RECOVERED)


# -- on demand ----------------------------------------------------------------------------------------


def elect(stage: Stage, kind: ElectionType, topic: str = "t", index: int = 0) -> int:
    """The leader that an election gives, or the error that it ends with."""
    reports = {partition.key: stage.reports(partition) for partition in stage.image.leaderless.values()}
    try:
        stage.commit([elect_leader(stage.image, stage.policy, topic, index, kind, reports)])
    except ApiError as e:
        return e.code
    return stage.partition(topic, index).leader


def test_a_preferred_leader_is_elected_from_the_isr() -> None:
    stage = Stage(2)
    partition = stage.topic("t", [1, 2])
    assert elect(stage, ElectionType.PREFERRED) == ErrorCode.ELECTION_NOT_NEEDED
    stage.fence(1)
    assert partition.leader == 2
    assert elect(stage, ElectionType.PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    stage.beat(1)
    assert elect(stage, ElectionType.PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    stage.alter(partition, [2, 1])
    assert elect(stage, ElectionType.PREFERRED) == 1
    assert (partition.isr, partition.leader_epoch) == ([2, 1], 2)


def test_an_unclean_leader_is_elected_on_request() -> None:
    stage = Stage(3)
    partition = stage.topic("t", [1, 2], min_isr=1)
    stage.alter(partition, [1])
    assert elect(stage, ElectionType.UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED
    stage.fence(2, 1)
    assert elect(stage, ElectionType.UNCLEAN) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    stage.beat(2)
    assert partition.leader == -1
    assert elect(stage, ElectionType.UNCLEAN) == 2
    assert (partition.isr, partition.leader_recovery) == ([2], RECOVERING)


def test_a_requested_unclean_leader_is_the_most_complete_that_reports() -> None:
    """Not the first that is up: its disk may be empty."""
    stage = Stage(4)
    partition = stage.topic("t", [1, 2, 3, 4], min_isr=1)
    other = stage.topic("u", [4], min_isr=1)
    stage.alter(partition, [1])
    stage.fence(1)
    named = [TopicPartitions(topic="t", partitions=[0, 0, 7]), TopicPartitions(topic="none", partitions=[0])]
    request = ElectLeadersRequest(election_type=1, topic_partitions=named)
    assert partitions_to_recover(stage.image, request) == [partition]
    assert partitions_to_recover(stage.image, ElectLeadersRequest(election_type=1)) == [partition]
    assert partitions_to_recover(stage.image, ElectLeadersRequest(election_type=0)) == []

    refused = at_once(elect_leaders(stage.image, stage.policy, request))[1].replica_election_results[0]
    assert refused.partition_result[0].error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert "broker 1: the broker is not up" in (refused.partition_result[0].error_message or "")

    reports = {partition.key: stage.reports(partition, {3: 5, 4: 4})}
    stage.commit(at_once(elect_leaders(stage.image, stage.policy, request, reports))[0])

    assert (partition.leader, partition.isr, partition.leader_recovery) == (3, [3], RECOVERING)
    assert other.leader == 4


def test_elections_of_unknown_partitions_are_refused() -> None:
    stage = Stage(1)
    stage.topic("t", [1])
    assert elect(stage, ElectionType.PREFERRED, "u") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(stage, ElectionType.PREFERRED, "t", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_for_all_leaves_out_partitions_that_need_no_election() -> None:
    stage = Stage(2)
    stage.topic("t", [1, 2], [2, 1])
    stage.fence(1)
    stage.beat(1)
    stage.alter(stage.partition("t", 0), [2, 1])

    named = [TopicPartitions(topic="t", partitions=[0, 1])]
    for requested, codes in ((None, [(0, 0)]), (named, [(0, 0), (1, ErrorCode.ELECTION_NOT_NEEDED)])):
        records, response = at_once(
            elect_leaders(
                stage.image, stage.policy, ElectLeadersRequest(election_type=0, topic_partitions=requested)
            )
        )
        (topic,) = response.replica_election_results
        assert [(p.partition_id, p.error_code) for p in topic.partition_result] == codes
        assert len(records) == 1

    with pytest.raises(ApiError) as refused:
        at_once(elect_leaders(stage.image, stage.policy, ElectLeadersRequest(election_type=2)))
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_leaders_go_back_to_brokers_that_lead_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(2)
    stage.topic("t", *[[1, 2]] * 4, [2, 1])
    stage.fence(1)
    stage.beat(1)
    for index in range(3):
        stage.alter(stage.partition("t", index), [2, 1])
    # 1 leads none of the 4 that prefer it, but the last of them cannot be given back yet.
    assert balance_leaders(stage.image, stage.policy, 100) == []
    monkeypatch.setattr(election, "MOST_ELECTIONS", 2)

    moved = []
    for _ in range(3):
        records = balance_leaders(stage.image, stage.policy, 10)
        moved.append(len(records))
        stage.commit(records)

    assert moved == [2, 1, 0]
    assert [p.leader for p in stage.image.partitions] == [1, 1, 1, 2, 2]
