"""The checksum of an image: the same however the image came about, another with any difference."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.metadata.checksum import Checksums, ImageChecksum, image_checksum, layout
from penstock.metadata.image import ClusterImage
from penstock.metadata.snapshot import image_of_snapshot, snapshot
from penstock.wire.metadata_records import ConfigRecord, FeatureLevelRecord, ProducerIdsRecord
from tests.metadata.stage import Stage

TOPIC = 2


def stage() -> Stage:
    made = Stage(3)
    made.topic("a", [1, 2, 3])
    made.topic("b", [2, 3, 1])
    made.commit([ConfigRecord(resource_type=TOPIC, resource_name="a", name="retention.ms", value="1")])
    made.commit([ProducerIdsRecord(broker_id=1, next_producer_id=1000)])
    made.fence(3)
    return made


def checksum(image: ClusterImage) -> int:
    return image_checksum(image, 7).checksum


def test_replayed_or_loaded_from_a_snapshot_it_is_the_same() -> None:
    made = stage()
    loaded = image_of_snapshot(snapshot(made.image), made.image.offset)
    backwards = image_of_snapshot(
        sorted(snapshot(made.image), key=lambda record: isinstance(record, FeatureLevelRecord)),
        made.image.offset,
    )
    replayed = ClusterImage()
    for offset, record in enumerate(made.log):
        replayed.apply(record, offset)

    assert checksum(loaded) == checksum(backwards) == checksum(replayed) == checksum(made.image)
    assert -(2**63) <= checksum(made.image) < 2**63


CHANGES: dict[str, Callable[[ClusterImage], object]] = {
    "leader": lambda image: setattr(image.topics["a"].partitions[0], "leader_epoch", 99),
    "isr": lambda image: image.topics["a"].partitions[0].isr.pop(),
    "topic": lambda image: image.topics.pop("b"),
    "config": lambda image: image.configs[TOPIC, "a"].update({"retention.ms": "2"}),
    "broker": lambda image: setattr(image.brokers[1], "fenced", True),
    "unregistered": lambda image: image.brokers.pop(2),
    "feature": lambda image: image.features.update({"metadata.version": 31}),
    "producer ids": lambda image: setattr(image, "next_producer_id", 2000),
}


@pytest.mark.parametrize("what", CHANGES)
def test_any_difference_shows(what: str) -> None:
    made = stage()
    before = checksum(made.image)

    CHANGES[what](made.image)

    assert checksum(made.image) != before


def test_an_empty_image_has_one_too() -> None:
    assert checksum(ClusterImage()) == 0


def test_the_layout_is_a_small_number_that_stays() -> None:
    assert layout() == layout()
    assert 0 <= layout() < 2**31


# -- comparison

ALL = (1, 2, 3)


def compared(
    controller: int = 1, times: int = 5, **checksums: ImageChecksum
) -> dict[int, ImageChecksum | None]:
    """What each node's checksum should be."""
    known = Checksums()
    found = {int(name.removeprefix("node")): value for name, value in checksums.items()}
    for node, value in [*found.items()] * times:
        known.heard(node, value)
    return {node: known.expected(node, controller, ALL) for node in found}


def at(end_offset: int, value: int, layout: int = 5) -> ImageChecksum:
    return ImageChecksum(end_offset, value, layout)


def test_the_majority_decides_even_against_the_controller() -> None:
    for controller in ALL:
        expected = compared(controller, node1=at(9, 1), node2=at(9, 2), node3=at(9, 2))
        assert expected == {1: at(9, 2), 2: at(9, 2), 3: at(9, 2)}


def test_of_two_the_controller_decides_in_time() -> None:
    """Until then a third node may show that it is the controller that differs."""
    assert compared(2, times=4, node1=at(9, 1), node2=at(9, 2)) == {1: None, 2: None}
    assert compared(2, times=5, node1=at(9, 1), node2=at(9, 2)) == {1: at(9, 2), 2: at(9, 2)}


def test_only_equal_offsets_and_layouts_are_compared() -> None:
    assert compared(node1=at(9, 1), node2=at(8, 2)) == {1: None, 2: None}
    assert compared(node1=at(9, 1), node2=at(9, 2, layout=6)) == {1: None, 2: None}


def test_an_unregistered_node_is_not_counted() -> None:
    assert compared(node1=at(9, 1), node4=at(9, 2))[1] is None


def test_without_majority_and_controller_nothing_is_known() -> None:
    assert compared(3, node1=at(9, 1), node2=at(9, 2)) == {1: None, 2: None}
