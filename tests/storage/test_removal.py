"""Removed partitions do not come back after a power loss."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from penstock.model.ids import TopicId
from penstock.storage.directory import DataDirectory
from penstock.storage.folders import StoredPartition
from penstock.storage.removal import PartitionRemoval, Removals
from penstock.testing.disk import FaultyDisk
from tests.storage.directories import RNG
from tests.storage.logs import CLOCK

TOPIC_ID: Final = TopicId(bytes(range(16)))
PARTITIONS: Final = [StoredPartition("t", index, TOPIC_ID) for index in range(3)]


def opened(disk: FaultyDisk) -> DataDirectory:
    return DataDirectory.open(disk, "/d", cluster_id="c", node_id=1, rng=RNG, clock=CLOCK)


@pytest.mark.parametrize(
    ("remove", "left"),
    [
        (lambda d: [d.remove_partition("t", 1)], ["t-0", "t-2"]),
        (lambda d: [d.remove_partition("t", index) for index in range(3)], []),
        (lambda d: [d.topic_removal("t")], []),
    ],
    ids=["one partition", "all partitions", "the topic"],
)
@pytest.mark.parametrize("seed", range(8))
def test_a_power_loss_brings_no_removed_partition_back(
    seed: int, remove: Callable[[DataDirectory], list[PartitionRemoval]], left: list[str]
) -> None:
    disk = FaultyDisk(Random(seed), CLOCK)
    directory = opened(disk)
    directory.create_partitions(PARTITIONS)
    disk.settle()
    assert Removals(remove(directory)).set_aside() == []
    disk.restart(power_loss=True)
    assert [f"{each.topic}-{each.partition}" for each in opened(disk).partitions()] == left
