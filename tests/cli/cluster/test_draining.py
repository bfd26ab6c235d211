"""Machines and brokers that are emptied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from penstock.cli.cluster import draining
from penstock.cli.cluster.draining import drain, evacuate
from penstock.cli.cluster.moves import Move, read_image
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.metadata.image import ClusterImage
from penstock.model.ids import TopicPartition
from penstock.testing import cluster
from penstock.wire.metadata_records import PartitionRecord, TopicRecord
from tests.metadata.sites import cluster as image_of
from tests.testing.cluster_clients import CLIENT, PATIENCE_S

EXCLUDED = "penstock.balance.exclude.brokers"


def holders(line: DirectLine) -> list[int]:
    """The brokers that hold replicas."""
    image = read_image(line)
    return [node for node in image.brokers if image.partitions_on(node)]


def test_brokers_are_emptied_and_stay_empty() -> None:
    with cluster(brokers=4) as running, DirectLine(running.bootstrap, PATIENCE_S) as line:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        admin.create_topics([NewTopic("t", 6, 2)])["t"].result(timeout=PATIENCE_S)
        # The broker that answers `line` may know the topic later than the controller.
        running.wait_until(lambda: {2, 3} <= set(holders(line)))
        with pytest.raises(Failure, match="too few brokers that are up would be left"):
            drain(line, None, [1, 2, 3], PATIENCE_S)
        configs = running._nodes[1].broker.stages.cluster.image.configs[4, ""]
        assert EXCLUDED not in configs, "nothing has changed"
        for broker in (3, 2):
            drained, moves = drain(line, None, [broker], PATIENCE_S)
            assert drained == [broker] and moves > 0
        assert not set(holders(line)) & {2, 3}, "the second drain moved nothing to the first broker"
        running.wait_until(lambda: configs.get(EXCLUDED) == "3,2")
        admin.create_topics([NewTopic("later", 6, 1)])["later"].result(timeout=PATIENCE_S)
        admin.create_partitions([NewPartitions("t", 9)])["t"].result(timeout=PATIENCE_S)
        assert not set(holders(line)) & {2, 3}, "new partitions are on other brokers"
        with pytest.raises(Failure, match="there is no broker 9"):
            drain(line, None, [9], PATIENCE_S)


def test_a_machine_is_all_brokers_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_of([("", "h")] * 4)
    for node, machine in zip(image.brokers, ("a", "b", "b", None), strict=True):
        image.brokers[node].machine = machine
    emptied: list[Collection[int]] = []

    def evacuation(
        line: object, numbers: Collection[int], timeout_s: float, avoided: Collection[int]
    ) -> list[Move]:
        emptied.append(numbers)
        return [Move(TopicPartition("t", 0), [1, 4])] if len(emptied) < 3 else []

    monkeypatch.setattr(draining, "read_image", lambda line: image)
    monkeypatch.setattr(draining, "keep_empty", lambda line, numbers: None)
    monkeypatch.setattr(draining, "_evacuation", evacuation)
    monkeypatch.setattr(draining, "carry_out", lambda line, moves, timeout_s: None)
    line = cast(Any, None)
    assert drain(line, "b", (), 1.0) == ([2, 3], 1)
    assert emptied == [[2, 3]] * 3, "once to check, once to move, once to see that nothing is left"
    with pytest.raises(Failure, match=r"no broker has the machine 'd' \(penstock.machine\); there are: a, b"):
        drain(line, "d", (), 1.0)


class Growing:
    """A cluster without brokers behind it, in which a topic is created on broker 2 during the first moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replicas = {"old": [2]}
        self.machines: dict[int, str] = {}
        self.steps: list[str] = []
        monkeypatch.setattr(draining, "read_image", self.image)
        monkeypatch.setattr(draining, "plan_moves", self.plan)
        monkeypatch.setattr(draining, "await_moves", lambda line, partitions, timeout_s: None)
        monkeypatch.setattr(draining, "keep_empty", lambda line, numbers: self.steps.append("exclude"))
        monkeypatch.setattr(draining, "carry_out", self.move)

    def image(self, line: object) -> ClusterImage:
        image = image_of([("", "h")] * 3)
        for node, machine in self.machines.items():
            image.brokers[node].machine = machine
        for name, nodes in self.replicas.items():
            topic_id = name.rjust(16).encode()
            image.apply(TopicRecord(name=name, topic_id=topic_id), 1)
            partition = PartitionRecord(
                partition_id=0, topic_id=topic_id, replicas=nodes, isr=nodes, leader=nodes[0]
            )
            image.apply(partition, 1)
        return image

    def plan(self, line: object, leaving: Collection[int], avoided: Collection[int]) -> list[Move]:
        held = [name for name, nodes in self.replicas.items() if set(nodes) & set(leaving)]
        return [Move(TopicPartition(name, 0), [1]) for name in held]

    def move(self, line: object, moves: list[Move], timeout_s: float) -> None:
        self.steps.append("move")
        self.replicas.setdefault("new", [2])
        self.replicas.update({move.partition.topic: move.replicas for move in moves})


def test_partitions_that_are_created_meanwhile_are_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Growing(monkeypatch)
    assert drain(cast(Any, None), None, [2], PATIENCE_S) == ([2], 2)
    assert growing.replicas == {"old": [1], "new": [1]}
    assert growing.steps == ["exclude", "move", "move"]


def test_brokers_of_one_machine_are_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Growing(monkeypatch)
    growing.replicas = {"t": [1, 2]}
    monkeypatch.setattr(draining, "plan_moves", lambda line, leaving, avoided: [])
    line = cast(Any, None)
    with pytest.raises(Failure, match=r"t-0 has 2 replicas, and too few brokers that are up would be left"):
        drain(line, None, [2], PATIENCE_S)
    growing.machines = {1: "a", 2: "b", 3: "a"}
    with pytest.raises(Failure, match=r"t-0 has 2 replicas, and too few machines that are up would be left"):
        drain(line, "b", (), PATIENCE_S)
    assert growing.steps == [], "nothing has changed"


def test_partitions_that_do_not_go_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Growing(monkeypatch)
    monkeypatch.setattr(draining, "carry_out", lambda line, moves, timeout_s: None)
    with pytest.raises(Failure, match=r"1 partitions, for example old-0, are still on the brokers after 0 s"):
        evacuate(cast(Any, None), [2], 0)
    assert growing.replicas == {"old": [2]}
