"""Partitions that cannot be hosted: kept, tried again, and logged once per reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from penstock.broker.replica.refused_partitions import RefusedPartition, RefusedPartitions
from penstock.metadata.image import TopicImage
from penstock.model.errors import StorageError
from penstock.model.ids import TopicId
from penstock.storage.directory import DataDirectory

TOPIC = TopicImage("t", TopicId(bytes(16)))


def directory(is_well: bool = True) -> DataDirectory:
    return cast(DataDirectory, SimpleNamespace(health=SimpleNamespace(is_well=is_well)))


def test_a_reason_is_new_once() -> None:
    refused = RefusedPartitions()
    partition = RefusedPartition(TOPIC, 0, directory(), made=True)
    assert not refused
    assert refused.add(partition, StorageError("no space"))
    assert not refused.add(partition, StorageError("no space"))
    assert refused.add(partition, StorageError("no such file"))
    assert refused


def test_only_partitions_of_sound_directories_are_tried_again() -> None:
    refused = RefusedPartitions()
    sound = RefusedPartition(TOPIC, 0, directory(), made=True)
    full = RefusedPartition(TOPIC, 1, directory(is_well=False), made=False)
    for partition in (sound, full):
        refused.add(partition, StorageError("no space"))
    assert refused.take() == [sound]
    assert refused.take() == []
    assert refused, "the other one is kept"


def test_a_partition_that_is_forgotten_names_its_directory() -> None:
    refused = RefusedPartitions()
    place = directory()
    refused.add(RefusedPartition(TOPIC, 0, place, made=True), StorageError("no space"))
    assert refused.discard("t", 0) is place
    assert refused.discard("t", 0) is None
    assert not refused
