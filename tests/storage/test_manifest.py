"""The manifest of a clean shutdown: a log is trusted only if it is what the manifest says."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicId, TopicPartition
from penstock.records.checksum import crc32c
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.log import Log
from penstock.storage.manifest import (
    NO_REGISTRATION,
    LoggedState,
    Manifest,
    ManifestRefused,
    Registration,
    forget_shutdown,
)
from penstock.storage.memory import MemoryFiles
from tests.storage.logs import CLOCK, NOW_MS, Tokens, batch, idempotent

ID, OTHER_ID = TopicId(b"a" * 16), TopicId(b"b" * 16)
REGISTRATION = Registration(7, bytes(range(16)))
KEY = TopicPartition("a", 0)
CONFIG = LogConfig(segment_bytes=300)
PATH = "/data/topics/a/partition-0"
MANIFEST = "/data/clean-shutdown"


def opened(files: MemoryFiles) -> DataDirectory:
    return DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens(), clock=CLOCK)


def written(files: MemoryFiles, batches: int = 10, epoch: int = 3, partition: int = 0) -> DataDirectory:
    """A directory with a log of several segments, all committed."""
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", partition, ID)])
    log = directory.open_log("a", partition, CONFIG, CLOCK)
    for _ in range(batches):
        log.append(batch(3), epoch)
    log.advance_high_watermark(log.end_offset - 3)
    return directory


def segments(files: MemoryFiles, path: str = PATH) -> list[str]:
    return [name for name in files.listdir(path) if name.endswith(".log")]


def test_a_log_that_matches_is_not_recovered_and_knows_its_high_watermark() -> None:
    files = MemoryFiles()
    written(files).close(registration=REGISTRATION)
    directory = opened(files)
    assert (directory.shutdown.clean, directory.shutdown.registration) == (True, REGISTRATION)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert log.recovery.clean
    assert (log.end_offset, log.high_watermark) == (30, 27)
    assert not directory.shutdown.unclean
    assert not files.exists(MANIFEST), "whatever happens now, the next start has to look"


def test_an_empty_log_matches() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID)])
    directory.open_log("a", 0, CONFIG, CLOCK)
    directory.close()
    # Nothing of it was synced: after a power loss it may have no files.
    for name in files.listdir(PATH):
        files.remove(f"{PATH}/{name}")
    directory = opened(files)
    assert directory.open_log("a", 0, CONFIG, CLOCK).end_offset == 0
    assert not directory.shutdown.unclean


class _NotedReads(MemoryFiles):
    """Notes which files were read as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def read(self, path: str) -> bytes:
        self.paths.append(path)
        return super().read(path)


@pytest.mark.parametrize("with_producer", [False, True])
def test_producer_snapshots_are_read_only_where_the_manifest_knows_of_producers(with_producer: bool) -> None:
    files = _NotedReads()
    directory = written(files)
    if with_producer:
        directory._logs[KEY].append(idempotent(0), 3)
    directory.close()
    files.paths.clear()
    log = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert log.recovery.clean
    assert list(log.producers.states) == ([7] if with_producer else [])
    assert any(path.endswith(".snapshot") for path in files.paths) == with_producer


def _remove(which: int) -> Callable[[MemoryFiles], None]:
    def damage(files: MemoryFiles) -> None:
        files.remove(f"{PATH}/{segments(files)[which]}")

    return damage


def _shorten(which: int) -> Callable[[MemoryFiles], None]:
    def damage(files: MemoryFiles) -> None:
        path = f"{PATH}/{segments(files)[which]}"
        file = files.open(path)
        file.truncate(file.size() // 2)

    return damage


def _grow(files: MemoryFiles) -> None:
    path = f"{PATH}/{segments(files)[-1]}"
    files.open(path).append(files.read(path))


def _replace_topic_id(files: MemoryFiles) -> None:
    path = "/data/topics/a/topic.metadata"
    files.write_atomic(path, files.read(path).replace(b"YWFh", b"YmJi"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_remove(0), "segment 00000000000000000000.log is missing"),
        (_remove(2), "is missing"),
        (_remove(-1), "is missing"),
        (_shorten(0), "instead of"),
        (_shorten(-1), "instead of"),
        (_grow, "instead of"),
        (_replace_topic_id, "topic id"),
    ],
)
def test_a_log_that_was_changed_while_the_broker_was_stopped_is_recovered_and_named(
    damage: Callable[[MemoryFiles], None], reason: str
) -> None:
    files = MemoryFiles()
    written(files).close()
    damage(files)
    directory = opened(files)
    assert directory.shutdown.clean
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert not log.recovery.clean
    assert reason in directory.shutdown.unclean[KEY]


def test_a_folder_that_was_rolled_back_to_an_older_clean_copy_is_named() -> None:
    files = MemoryFiles()
    written(files, batches=4).close()
    old = {name: files.read(f"{PATH}/{name}") for name in files.listdir(PATH)}
    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    for _ in range(4):
        log.append(batch(3), 3)
    directory.close()
    files.rmtree(PATH)
    files.makedirs(PATH)
    for name, content in old.items():
        files.write_atomic(f"{PATH}/{name}", content)

    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert KEY in directory.shutdown.unclean
    assert (log.recovery.corruption[0].first_offset, log.end_offset) == (12, 24), "no offset is given twice"


def test_a_log_that_the_manifest_does_not_list_is_named() -> None:
    files = MemoryFiles()
    written(files).close()
    other = MemoryFiles()
    written(other, partition=1).close()
    files.root["data"]["topics"]["a"]["partition-1"] = (  # type: ignore[index]
        other.root["data"]["topics"]["a"]["partition-1"]  # type: ignore[index]
    )
    directory = opened(files)
    directory.open_log("a", 1, CONFIG, CLOCK)
    assert "does not list it" in directory.shutdown.unclean[TopicPartition("a", 1)]
    directory.create_partitions([StoredPartition("a", 2, ID)])
    directory.open_log("a", 2, CONFIG, CLOCK)
    assert TopicPartition("a", 2) not in directory.shutdown.unclean, "it is new"


def test_a_log_that_a_command_replaces_is_read_by_the_next_start() -> None:
    files = MemoryFiles()
    written(files).close(registration=REGISTRATION)
    forget_shutdown(files, "/data", [KEY])
    directory = opened(files)
    assert directory.shutdown.registration == REGISTRATION, "the manifest goes on to speak of the others"
    assert not directory.open_log("a", 0, CONFIG, CLOCK).recovery.clean


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_a_manifest_that_is_missing_or_refused_stays_as_it_is(content: bytes | None) -> None:
    files = MemoryFiles()
    opened(files).close()
    if content is None:
        files.remove(MANIFEST)
    else:
        files.write_atomic(MANIFEST, content)
    forget_shutdown(files, "/data", [KEY])
    assert (files.read(MANIFEST) if files.exists(MANIFEST) else None) == content


def test_a_metadata_log_that_was_changed_is_named_and_not_recovered() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition(METADATA_TOPIC, 0, METADATA_TOPIC_ID)])
    log = directory.open_log(METADATA_TOPIC, 0, CONFIG, CLOCK)
    for _ in range(10):
        log.append(batch(3), 1)
    directory.close()
    path = f"/data/topics/{METADATA_TOPIC}/partition-0"
    files.remove(f"{path}/{segments(files, path)[-1]}")
    directory = opened(files)
    log = directory.open_log(METADATA_TOPIC, 0, CONFIG, CLOCK)
    assert not log.recovery.corruption and log.end_offset < 30
    assert TopicPartition(METADATA_TOPIC, 0) in directory.shutdown.unclean


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "0.1.0"),
        (b"\0" * 100, "damaged"),
        (b"penstock-shutdown-manifest 2 00000000\n{}\n", "unknown version 2"),
        (b"penstock-shutdown-manifest 1 00000000\n{}\n", "damaged"),
    ],
)
def test_an_unusable_manifest_makes_the_directory_unclean(content: bytes, problem: str) -> None:
    files = MemoryFiles()
    written(files).close(registration=REGISTRATION)
    files.write_atomic(MANIFEST, content)
    directory = opened(files)
    assert not directory.shutdown.clean
    assert directory.shutdown.registration == NO_REGISTRATION
    assert problem in (directory.shutdown.problem or "")
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert not log.recovery.clean and log.end_offset == 30
    assert not directory.shutdown.unclean, "all of the directory is"


def test_any_flipped_bit_of_a_manifest_is_noticed() -> None:
    state = LoggedState("a", 0, "x", 0, 30, 27, 3, 0, [0, 100, 10, 200], [], seals=[])
    data = Manifest.of("d", REGISTRATION, [state]).encode()
    assert Manifest.decode(data).logs == {KEY: state}
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(ManifestRefused):
                Manifest.decode(bytes(flipped))
    for size in range(len(data)):
        with pytest.raises(ManifestRefused):
            Manifest.decode(data[:size])


def test_a_manifest_of_an_earlier_release_names_no_incarnation() -> None:
    data = Manifest.of("d", REGISTRATION, []).encode()
    body = data.splitlines()[1].replace(b'"incarnation":"%s",' % REGISTRATION.incarnation.hex().encode(), b"")
    earlier = b"penstock-shutdown-manifest 1 %08x\n%s\n" % (crc32c(body), body)
    assert Manifest.decode(earlier).registration == Registration(7, bytes(16))


def test_the_manifest_of_another_directory_is_ignored() -> None:
    files = MemoryFiles()
    written(files).close(registration=REGISTRATION)
    manifest = Manifest.decode(files.read(MANIFEST))
    files.write_atomic(MANIFEST, manifest._replace(directory_id="other").encode())
    directory = opened(files)
    assert not directory.shutdown.clean
    assert "other" in (directory.shutdown.problem or "")


def _churn(rng: Random, log: Log) -> None:
    """Whatever a log goes through while a broker runs."""
    for _ in range(rng.randint(0, 25)):
        action = rng.choice(["append"] * 4 + ["roll", "truncate", "delete", "retain", "reset", "lead"])
        if action == "append":
            log.append(batch(rng.randint(1, 4)), max(log.leader_epochs.latest, 0))
        elif action == "lead":
            log.leader_epochs.assign(log.leader_epochs.latest + 1, log.end_offset)
        elif action == "roll":
            log.roll()
        elif action == "truncate":
            log.truncate_to(rng.randint(log.log_start_offset, log.end_offset))
        elif action == "delete":
            log.advance_high_watermark(rng.randint(log.log_start_offset, log.end_offset))
            log.delete_records(log.high_watermark)
        elif action == "retain":
            for removal in log.retention.apply(NOW_MS + 365 * 24 * 3_600_000):
                removal.delete()
        elif rng.random() < 0.2:
            log.reset_to(rng.randint(0, 100))


@pytest.mark.parametrize("seed", range(150))
def test_a_log_matches_its_manifest_after_any_operations(seed: int) -> None:
    rng = Random(seed)
    files = MemoryFiles(CLOCK)
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID)])
    for _ in range(4):
        log = directory.open_log("a", 0, CONFIG, CLOCK)
        assert not directory.shutdown.unclean, directory.shutdown.unclean
        _churn(rng, log)
        end = log.end_offset
        directory.close()
        directory = opened(files)
        assert directory.shutdown.clean
    assert directory.open_log("a", 0, CONFIG, CLOCK).end_offset == end
