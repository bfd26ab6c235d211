"""Leader epochs that are damaged, missing or older than the log are never applied."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.model.ids import METADATA_TOPIC, TopicId, TopicPartition, format_topic_id
from penstock.storage.config import LogConfig
from penstock.storage.directory import StoredPartition
from penstock.storage.epochs import EPOCHS_FILE, LeaderEpochs
from penstock.storage.manifest import OTHER_EPOCHS, Manifest
from penstock.storage.memory import MemoryFiles
from penstock.storage.seals import LogOwner
from tests.storage.directories import opened
from tests.storage.earlier_releases import of_version_0
from tests.storage.logs import CLOCK, batch, flush, records

CONFIG = LogConfig()
EPOCHS = [1, 0, 2, 4, 5, 7]


def written(files: MemoryFiles, topic: str = "a", more: int = 0) -> str:
    """Three leader epochs, a clean shutdown, and the path of the checkpoint.

    The last epoch has `more` segments.
    """
    directory = opened(files)
    directory.create_partitions([StoredPartition(topic, 0, TopicId(b"\1" * 16))])
    log = directory.open_log(topic, 0, CONFIG, CLOCK)
    for epoch, count in ((1, 4), (2, 3), (5, 2)):
        for _ in range(count):
            log.append(batch(), epoch)
        log.roll()
    for _ in range(more):
        log.append(batch(), 5)
        log.roll()
    log.advance_high_watermark(9 + more)
    assert log.leader_epochs.within(0, 9 + more) == EPOCHS
    directory.close()
    return f"{directory.partition_path(topic, 0)}/{EPOCHS_FILE}"


def _remove(files: MemoryFiles, path: str) -> None:
    files.remove(path)


def _flip(files: MemoryFiles, path: str) -> None:
    """One bit: the second epoch starts at 5."""
    files.write_atomic(path, files.read(path).replace(b"2 4", b"2 5"))


def _roll_back(files: MemoryFiles, path: str) -> None:
    """An older copy of the file, in which the last epoch has not begun."""
    files.write_atomic(path, of_version_0(["1 0", "2 4"]))


def _alter(files: MemoryFiles, path: str) -> None:
    """The last epoch is right, an earlier one is missing."""
    files.write_atomic(path, of_version_0(["1 0", "5 7"]))


Damage = Callable[[MemoryFiles, str], None]


@pytest.mark.parametrize("damage", [_remove, _flip])
@pytest.mark.parametrize("clean", [True, False])
def test_epochs_that_are_lost_or_damaged_come_from_the_manifest_or_the_batches(
    damage: Damage, clean: bool
) -> None:
    files = MemoryFiles()
    path = written(files)
    damage(files, path)
    if not clean:
        files.remove("/data/clean-shutdown")
    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert log.leader_epochs.within(0, 9) == EPOCHS
    assert set(log.recovery.damaged_files) == ({path} if damage is _flip else set())
    assert (log.recovery.clean, directory.shutdown.unclean) == (clean, {})
    flush(log)
    directory.close(clean=False)
    assert not opened(files).open_log("a", 0, CONFIG, CLOCK).recovery.damaged_files, "it was written again"


@pytest.mark.parametrize("damage", [_roll_back, _alter])
@pytest.mark.parametrize("topic", ["a", METADATA_TOPIC])
def test_epochs_of_another_time_are_replaced_and_the_log_is_unclean(damage: Damage, topic: str) -> None:
    """With them, a follower that diverges in the forgotten epoch would keep what is not committed."""
    files = MemoryFiles()
    damage(files, written(files, topic))
    directory = opened(files)
    log = directory.open_log(topic, 0, CONFIG, CLOCK)
    assert directory.shutdown.unclean == {TopicPartition(topic, 0): OTHER_EPOCHS}
    assert log.leader_epochs.within(0, 9) == EPOCHS
    assert (log.end_offset, len(records(log)), log.recovery.clean) == (9, 9, True)


def test_a_manifest_of_an_earlier_release_has_no_epochs() -> None:
    files = MemoryFiles()
    path = written(files)
    manifest = Manifest.decode(files.read("/data/clean-shutdown"))
    logs = {key: log._replace(epochs=None) for key, log in manifest.logs.items()}
    files.write_atomic("/data/clean-shutdown", manifest._replace(logs=logs).encode())
    _flip(files, path)
    directory = opened(files)
    assert directory.open_log("a", 0, CONFIG, CLOCK).leader_epochs.within(0, 9) == EPOCHS
    assert directory.shutdown.unclean == {}


def test_the_manifest_has_the_epochs_of_a_log_whose_records_are_deleted() -> None:
    """Its batches would not have them any more."""
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, TopicId(b"\1" * 16))])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    log.append(batch(), 3)
    log.roll()
    log.advance_high_watermark(1)
    log.delete_records(1)
    log.retention.apply(None)
    directory.close()
    files.remove(f"{log.path}/{EPOCHS_FILE}")
    directory = opened(files)
    assert directory.open_log("a", 0, CONFIG, CLOCK).leader_epochs.latest == 3
    assert directory.shutdown.unclean == {}


def _raise(files: MemoryFiles, path: str) -> None:
    """An epoch that no batch has."""
    files.write_atomic(path, of_version_0(["1 0", "2 4", "5 7", "9 8"]))


def _shift(files: MemoryFiles, path: str) -> None:
    """An epoch that starts within the batches of the one before."""
    files.write_atomic(path, of_version_0(["1 0", "2 3", "5 7"]))


@pytest.mark.parametrize("damage", [_roll_back, _alter, _raise, _shift])
def test_epochs_of_another_time_are_found_after_a_crash(damage: Damage) -> None:
    """Everything is below the recovery point, so that the batches are not read otherwise."""
    files = MemoryFiles()
    path = written(files, more=2)
    damage(files, path)
    files.remove("/data/clean-shutdown")
    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert log.recovery.walked_from == 10
    assert log.leader_epochs.within(0, 11) == EPOCHS
    assert log.recovery.other_epochs
    directory.close()
    assert opened(files).open_log("a", 0, CONFIG, CLOCK).leader_epochs.within(0, 11) == EPOCHS


@pytest.mark.parametrize("clean", [True, False])
def test_the_epochs_of_another_partition_are_not_used(clean: bool) -> None:
    files = MemoryFiles()
    path = written(files)
    content = files.read(path)
    assert content.startswith(b"3\n4\n")
    other = LeaderEpochs.decode(content)
    other.restore([1, 0, 2, 4, 5, 7])
    owner = LogOwner.of(format_topic_id(bytes(15) + b"\2"), 0)
    files.write_atomic(path, other.encode(owner))
    if not clean:
        files.remove("/data/clean-shutdown")
    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert list(log.recovery.damaged_files) == [path]
    assert log.leader_epochs.within(0, 9) == EPOCHS
