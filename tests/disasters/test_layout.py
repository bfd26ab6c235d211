from __future__ import annotations

from pathlib import Path

import pytest

from disasters.layout import KAFKA, PENSTOCK, Disk, Layout


@pytest.fixture(params=[PENSTOCK, KAFKA], ids=["penstock", "kafka"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """Two directories: the first has orders-0 and orders-2, the second orders-1 and orders-new-0."""
    layout: Layout = request.param
    first, second = tmp_path / "one", tmp_path / "two"
    for data, topic, number in (
        (first, "orders", 0),
        (first, "orders", 2),
        (second, "orders", 1),
        (second, "orders-new", 0),
    ):
        folder = layout.partition(data, topic, number)
        folder.mkdir(parents=True)
        (folder / "0.log").write_text(f"{topic} {number}")
    return Disk(layout, (first, second))


def test_finds_a_partition_in_any_directory(disk: Disk) -> None:
    assert (disk.partition("orders", 1) / "0.log").read_text() == "orders 1"
    assert not disk.partition("orders", 7).exists()


def test_lists_the_partitions_of_one_topic_only(disk: Disk) -> None:
    found = [(folder / "0.log").read_text() for folder in disk.partitions("orders")]
    assert found == ["orders 0", "orders 2", "orders 1"]


def test_removes_a_topic_and_nothing_else(disk: Disk) -> None:
    disk.remove_topic("orders")
    assert disk.partitions("orders") == []
    assert len(disk.partitions("orders-new")) == 1


def test_restores_a_copy_of_all_directories_or_one(disk: Disk, tmp_path: Path) -> None:
    disk.copy_to(tmp_path / "copy")
    for number in range(3):
        (disk.partition("orders", number) / "0.log").write_text("newer")
    disk.restore(tmp_path / "copy", number=1)
    assert (disk.partition("orders", 1) / "0.log").read_text() == "orders 1"
    assert (disk.partition("orders", 0) / "0.log").read_text() == "newer"
    disk.restore(tmp_path / "copy")
    assert (disk.partition("orders", 0) / "0.log").read_text() == "orders 0"


def test_restores_one_topic_alone(disk: Disk, tmp_path: Path) -> None:
    disk.copy_to(tmp_path / "copy")
    for topic, number in (("orders", 1), ("orders-new", 0)):
        (disk.partition(topic, number) / "0.log").write_text("newer")
        (disk.partition(topic, number) / "1.log").write_text("newest")
    disk.restore_topic(tmp_path / "copy", "orders")
    assert (disk.partition("orders", 1) / "0.log").read_text() == "orders 1"
    assert not (disk.partition("orders", 1) / "1.log").exists()
    assert (disk.partition("orders-new", 0) / "0.log").read_text() == "newer"


def test_names_the_files_that_exist(disk: Disk) -> None:
    (disk.directories[1] / "checkpoint").touch()
    assert disk.files("checkpoint") == [disk.directories[1] / "checkpoint"]
