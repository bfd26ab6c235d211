"""Machines and brokers that are emptied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from penstock.cli.cluster import draining
from penstock.cli.cluster.draining import drain
from penstock.cli.cluster.moves import Move, read_image
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.model.ids import TopicPartition
from penstock.testing import cluster
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
        assert read_image(line).partitions_on(2) or read_image(line).partitions_on(3)
        with pytest.raises(Failure, match="too few brokers that are up would be left"):
            drain(line, None, [1, 2, 3], PATIENCE_S)
        configs = running._nodes[1].broker.image.configs[4, ""]
        assert EXCLUDED not in configs, "nothing has changed"
        for broker in (3, 2):
            drained, moves = drain(line, None, [broker], PATIENCE_S)
            assert drained == [broker] and moves > 0
        assert not set(holders(line)) & {2, 3}, "the second drain moved nothing to the first broker"
        assert configs[EXCLUDED] == "3,2"
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

    def evacuation(line: object, numbers: Collection[int], timeout_s: float) -> list[Move]:
        emptied.append(numbers)
        return [Move(TopicPartition("t", 0), [1, 4])]

    monkeypatch.setattr(draining, "read_image", lambda line: image)
    monkeypatch.setattr(draining, "keep_empty", lambda line, numbers: None)
    monkeypatch.setattr(draining, "_evacuation", evacuation)
    monkeypatch.setattr(draining, "carry_out", lambda line, moves, timeout_s: None)
    line = cast(Any, None)
    assert drain(line, "b", (), 1.0) == ([2, 3], 1)
    assert emptied == [[2, 3]]
    with pytest.raises(Failure, match=r"no broker has the machine 'd' \(penstock.machine\); there are: a, b"):
        drain(line, "d", (), 1.0)
