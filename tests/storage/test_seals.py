"""Seals: files beside a segment that are missing, older, exchanged or overwritten are rebuilt."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.ids import TopicId
from penstock.ports import File
from penstock.records.checksum import crc32c
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Log
from penstock.storage.manifest import LoggedState, Manifest, Registration
from penstock.storage.memory import MemoryFiles
from penstock.storage.scan import CorruptLog
from penstock.storage.seals import NO_OWNER, LogOwner, Seal, decode_seal, encode_seal
from tests.storage.logs import (
    CLOCK,
    NOW_MS,
    Tokens,
    append_marker,
    batch,
    flush,
    idempotent,
    marker,
    record_at_or_after,
    records,
)

CONFIG = LogConfig()
MINUTE_MS = 60_000
FOLDER = "/data/topics/a/partition-{}"
MANIFEST = "/data/clean-shutdown"
TRANSACTIONAL: dict[str, Any] = {"transactional": True}

_CHECKSUMS = st.none() | st.integers(0, 2**32 - 1)
_OFFSETS = st.integers(0, 2**63 - 1)
_SEALS = st.builds(
    Seal,
    st.just(NO_OWNER)
    | st.builds(LogOwner, st.text("abcXYZ019-_", min_size=22, max_size=22), st.integers(0, 9)),
    _OFFSETS,
    _OFFSETS,
    _OFFSETS,
    _OFFSETS,
    st.integers(-1, 2**63 - 1),
    _OFFSETS,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    _CHECKSUMS,
    _CHECKSUMS,
    _CHECKSUMS,
    _CHECKSUMS,
)


@given(_SEALS, st.data())
def test_a_seal_is_read_as_it_was_written_or_refused(seal: Seal, data: st.DataObject) -> None:
    content = encode_seal(seal)
    assert decode_seal(content) == seal
    position = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ValueError):
        decode_seal(bytes(damaged))
    with pytest.raises(ValueError):
        decode_seal(content[:position])


def opened(files: MemoryFiles) -> DataDirectory:
    return DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())


def transaction(log: Log, producer_id: int, committed: bool, sequence: int) -> None:
    log.append(idempotent(sequence, 2, producer_id=producer_id, **TRANSACTIONAL), 0, guard=NO_VERIFICATION)
    append_marker(log, marker(committed, producer_id=producer_id))


def written(files: MemoryFiles, partitions: int = 1) -> DataDirectory:
    """Segments at 0, 12 and 24, each with two aborted and two committed transactions; all is checkpointed."""
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", p, TopicId(b"i" * 16)) for p in range(partitions)])
    for partition in range(partitions):
        log = directory.open_log("a", partition, CONFIG, CLOCK)
        for segment in range(3):
            for nth in range(4):
                transaction(log, 10 * partition + nth, nth % 2 == 0, 2 * segment)
            if segment < 2:
                log.roll()
        log.advance_high_watermark(log.end_offset)
        flush(log)
    directory.checkpoint().write()
    return directory


def aborted(log: Log) -> list[tuple[int, int]]:
    return log.aborted_transactions(0, log.end_offset)


EXPECTED = [(1, 3), (3, 9), (1, 15), (3, 21), (1, 27), (3, 33)]


def _path(name: str, partition: int = 0) -> str:
    return f"{FOLDER.format(partition)}/{name}"


def _removed(files: MemoryFiles, path: str) -> None:
    files.remove(path)


def _zeroed(files: MemoryFiles, path: str) -> None:
    files.write_atomic(path, bytes(files.size(path)))


def _without_last_entry(files: MemoryFiles, path: str) -> None:
    files.write_atomic(path, files.read(path)[:-34])


def _other_segment(files: MemoryFiles, path: str) -> None:
    files.write_atomic(path, files.read(_path("00000000000000000024.txnindex")))


def _flipped(files: MemoryFiles, path: str) -> None:
    content = bytearray(files.read(path))
    content[-1] ^= 4
    files.write_atomic(path, bytes(content))


DAMAGES = [_removed, _zeroed, _without_last_entry, _other_segment, _flipped]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base", [0, 12])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_transaction_index_that_is_not_the_sealed_one_is_rebuilt(
    clean: bool, base: int, damage: Callable[[MemoryFiles, str], None]
) -> None:
    files = MemoryFiles()
    directory = written(files)
    directory.close(clean)
    index = _path(f"{base:020}.txnindex")
    content = files.read(index)
    damage(files, index)
    log = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert aborted(log) == EXPECTED
    assert log.recovery.transactions_rebuilt_from == base
    assert files.read(index) == content
    log.close(clean=False)
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert (aborted(again), again.recovery.transactions_rebuilt_from) == (EXPECTED, -1)


@pytest.mark.parametrize("suffix", [".txnindex", ".seal"])
def test_without_damage_or_with_a_lost_seal_the_index_stays(suffix: str) -> None:
    """After a crash nothing proves the index of a segment without a seal: it is rebuilt, and is the same."""
    files = MemoryFiles()
    written(files).close(clean=False)
    if suffix == ".seal":
        files.remove(_path("00000000000000000000.seal"))
    log = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert aborted(log) == EXPECTED
    assert log.recovery.transactions_rebuilt_from == (0 if suffix == ".seal" else -1)
    assert files.exists(_path("00000000000000000000.seal"))


@pytest.mark.parametrize("clean", [True, False])
def test_seal_and_index_of_another_partition_are_ignored(clean: bool) -> None:
    files = MemoryFiles()
    written(files, partitions=2).close(clean)
    for name in ("00000000000000000000.txnindex", "00000000000000000000.seal"):
        one, other = files.read(_path(name, 0)), files.read(_path(name, 1))
        files.write_atomic(_path(name, 0), other)
        files.write_atomic(_path(name, 1), one)
    log = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert aborted(log) == EXPECTED


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_of_an_earlier_release_is_opened_without_loss_and_sealed(clean: bool) -> None:
    files = MemoryFiles()
    written(files).close(clean)
    for name in files.listdir(FOLDER.format(0)):
        if name.endswith(".seal"):
            files.remove(_path(name))
    if clean:
        manifest = Manifest.decode(files.read(MANIFEST))
        logs = [each._replace(seals=()) for each in manifest.logs.values()]
        files.write_atomic(MANIFEST, Manifest.of(*manifest[:2], logs).encode())
    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert aborted(log) == EXPECTED
    # A manifest counts the entries, and each has its marker: nothing has to be replayed.
    assert log.recovery.transactions_rebuilt_from == (-1 if clean else 0)
    transaction(log, 1, False, 6)
    log.roll()
    assert files.exists(_path("00000000000000000024.seal"))


@pytest.mark.parametrize("damage", [_removed, _zeroed, _other_segment])
def test_an_index_of_an_earlier_release_is_compared_with_the_markers(
    damage: Callable[[MemoryFiles, str], None],
) -> None:
    files = MemoryFiles()
    written(files).close()
    for name in files.listdir(FOLDER.format(0)):
        if name.endswith(".seal"):
            files.remove(_path(name))
    damage(files, _path("00000000000000000012.txnindex"))
    log = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert aborted(log) == EXPECTED


def test_a_log_without_transactions_is_not_replayed_for_lack_of_seals() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, TopicId(b"i" * 16))])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    for _ in range(3):
        log.append(batch(), 0)
        log.roll()
    flush(log)
    directory.checkpoint().write()
    directory.close(clean=False)
    for name in files.listdir(FOLDER.format(0)):
        if name.endswith(".seal"):
            files.remove(_path(name))
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert again.recovery.transactions_rebuilt_from == -1


# -- snapshots of producers


@pytest.mark.parametrize("clean", [True, False])
def test_an_older_snapshot_under_a_newer_name_is_not_used(clean: bool) -> None:
    """The transaction was open at the shutdown, and the older snapshot knows nothing of it."""
    files = MemoryFiles()
    directory = written(files)
    log = directory._logs[next(iter(directory._logs))]
    if not clean:
        # After a crash, recovery begins with the snapshot at the start of the segment.
        log.append(idempotent(6, 2, producer_id=1, **TRANSACTIONAL), 0, guard=NO_VERIFICATION)
        log.roll()
    log.append(idempotent(8 if not clean else 6, 2, producer_id=1, **TRANSACTIONAL), 0, guard=NO_VERIFICATION)
    flush(log)
    directory.checkpoint().write()
    open_since = log.producers.first_unstable
    end = log.end_offset
    directory.close(clean)
    newest = max(name for name in files.listdir(FOLDER.format(0)) if name.endswith(".snapshot"))
    files.write_atomic(_path(newest), files.read(_path("00000000000000000012.snapshot")))
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    again.advance_high_watermark(end)
    assert (again.producers.first_unstable, again.last_stable_offset) == (open_since, open_since)
    append_marker(again, marker(False, producer_id=1))
    assert aborted(again)[:-1] == EXPECTED
    assert aborted(again)[-1] == (1, open_since)


def test_exchanged_snapshots_of_two_partitions_are_not_used() -> None:
    files = MemoryFiles()
    written(files, partitions=2).close()
    for name in files.listdir(FOLDER.format(0)):
        if name.endswith(".snapshot"):
            one, other = files.read(_path(name, 0)), files.read(_path(name, 1))
            files.write_atomic(_path(name, 0), other)
            files.write_atomic(_path(name, 1), one)
    directory = opened(files)
    for partition in range(2):
        log = directory.open_log("a", partition, CONFIG, CLOCK)
        assert sorted(log.producers.states) == [10 * partition + nth for nth in range(4)]
        repeated = log.append(idempotent(4, 2, producer_id=10 * partition, **TRANSACTIONAL), 0)
        assert repeated.duplicate
    # A clean shutdown replaces them.
    directory.close()
    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert (log.producers.snapshot_offset, log.producers.snapshot_refused) == (log.end_offset, False)


# -- indexes, and the batches themselves

EVERY_FILE = (".log", ".index", ".timeindex", ".snapshot", ".seal")


class CountingFiles(MemoryFiles):
    """Counts the files that are read or opened, by suffix."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def read(self, path: str) -> bytes:
        self.seen[path.rpartition("/")[2].partition(".")[2]] += 1
        return super().read(path)

    def open(self, path: str, *, create: bool = False) -> File:
        self.seen[path.rpartition("/")[2].partition(".")[2]] += 1
        return super().open(path, create=create)


def plain(files: MemoryFiles, partitions: int = 1) -> DataDirectory:
    """Segments at 0, 4, 8 and 12 without transactions, with a record each minute."""
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", p, TopicId(b"i" * 16)) for p in range(partitions)])
    for partition in range(partitions):
        log = directory.open_log("a", partition, CONFIG, CLOCK)
        for nth in range(16):
            log.append(batch(value=b"%d-%02d" % (partition, nth), timestamp=NOW_MS + nth * MINUTE_MS), 0)
            if nth % 4 == 3 and nth < 15:
                log.roll()
        log.advance_high_watermark(log.end_offset)
        flush(log)
    directory.checkpoint().write()
    return directory


def test_a_start_after_a_clean_shutdown_reads_no_seal_of_a_log_without_producers() -> None:
    files = CountingFiles()
    plain(files).close()
    files.seen.clear()
    opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert files.seen["seal"] == files.seen["index"] == files.seen["txnindex"] == 0


def test_a_start_after_a_crash_reads_one_seal_for_each_sealed_segment() -> None:
    files = CountingFiles()
    plain(files).close(clean=False)
    files.seen.clear()
    opened(files).open_log("a", 0, CONFIG, CLOCK)
    # The last sealed segment and the active one are walked. A walked segment is sealed again.
    assert files.seen["seal"] <= 4


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_an_index_that_is_not_the_sealed_one_is_rebuilt(suffix: str, clean: bool) -> None:
    """The index of another segment of the same shape has entries in order, too."""
    files = MemoryFiles()
    plain(files).close(clean)
    index = _path(f"{4:020}{suffix}")
    files.write_atomic(index, files.read(_path(f"{0:020}{suffix}")))
    log = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert [record.value for record in records(log)] == [b"0-%02d" % nth for nth in range(16)]
    for nth in range(16):
        found = record_at_or_after(log, NOW_MS + nth * MINUTE_MS)
        assert found is not None
        assert found.offset == nth


def test_retention_ignores_an_older_time_index() -> None:
    """It would delete segments whose records are young."""
    files = MemoryFiles()
    plain(files).close(clean=False)
    for base in (4, 8):
        files.write_atomic(_path(f"{base:020}.timeindex"), files.read(_path(f"{0:020}.timeindex")))
    config = replace(CONFIG, retention_ms=5 * MINUTE_MS)
    log = opened(files).open_log("a", 0, config, CLOCK)
    log.advance_high_watermark(16)
    removed = log.retention.apply(NOW_MS + 9 * MINUTE_MS)
    assert [removal.base_offset for removal in removed] == [0]


def exchange(files: MemoryFiles, suffixes: tuple[str, ...]) -> None:
    """Exchange files of the segment at 4 between partitions 0 and 1, those that are there."""
    for suffix in suffixes:
        name = f"{4:020}{suffix}"
        if files.exists(_path(name)):
            one, other = files.read(_path(name, 0)), files.read(_path(name, 1))
            files.write_atomic(_path(name, 0), other)
            files.write_atomic(_path(name, 1), one)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex", ".snapshot"), EVERY_FILE])
def test_exchanged_segments_are_not_served(clean: bool, suffixes: tuple[str, ...]) -> None:
    """Of two partitions, of equal name and size: their offsets and checksums are right."""
    files = MemoryFiles()
    plain(files, partitions=2).close(clean)
    exchange(files, suffixes)
    directory = opened(files)
    for partition in range(2):
        log = directory.open_log("a", partition, CONFIG, CLOCK)
        with pytest.raises(CorruptLog):
            log.read(5, 1 << 20, upper=16)
        assert log.segments.exchanged == {4}
        assert log.read(8, 1 << 20, upper=16) is not None


def test_exchanged_segments_are_found_if_their_seals_are_removed() -> None:
    """The manifest has the checksum of the first batch header."""
    files = MemoryFiles()
    plain(files, partitions=2).close()
    exchange(files, EVERY_FILE)
    for partition in range(2):
        files.remove(_path(f"{4:020}.seal", partition))
    log = opened(files).open_log("a", 0, CONFIG, CLOCK)
    with pytest.raises(CorruptLog):
        log.read(5, 1 << 20, upper=16)
    assert log.segments.exchanged == {4}


@pytest.mark.parametrize("suffixes", [(".log", ".seal"), EVERY_FILE])
@pytest.mark.parametrize("clean", [True, False])
def test_retention_deletes_no_segment_for_the_seal_of_another_log(
    clean: bool, suffixes: tuple[str, ...]
) -> None:
    files = MemoryFiles()
    plain(files, partitions=2).close(clean)
    exchange(files, suffixes)
    config = replace(CONFIG, retention_ms=5 * MINUTE_MS)
    log = opened(files).open_log("a", 0, config, CLOCK)
    log.advance_high_watermark(16)
    removed = log.retention.apply(NOW_MS + 60 * MINUTE_MS)
    assert [removal.base_offset for removal in removed] == [0]


def test_an_index_without_its_seal_is_rebuilt_after_a_clean_shutdown() -> None:
    files = MemoryFiles()
    plain(files).close()
    files.remove(_path(f"{4:020}.seal"))
    index = files.read(_path(f"{4:020}.timeindex"))
    files.write_atomic(_path(f"{4:020}.timeindex"), files.read(_path(f"{0:020}.timeindex")))
    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    found = record_at_or_after(log, NOW_MS + 5 * MINUTE_MS)
    assert found is not None
    assert found.offset == 5
    assert log.segments.holding(5).times().encode() == index


def test_the_manifest_names_the_seals_that_were_not_read_again() -> None:
    """A broker may run for a second between two shutdowns."""
    files = MemoryFiles()
    plain(files, partitions=2).close()
    for _ in range(2):
        directory = opened(files)
        for partition in range(2):
            directory.open_log("a", partition, CONFIG, CLOCK)
        directory.close()
    exchange(files, EVERY_FILE)
    for partition in range(2):
        files.remove(_path(f"{4:020}.seal", partition))
    log = opened(files).open_log("a", 0, CONFIG, CLOCK)
    with pytest.raises(CorruptLog):
        log.read(5, 1 << 20, upper=16)


@pytest.mark.parametrize("rolls", [True, False])
def test_appends_after_a_clean_shutdown_do_not_contradict_the_seal_of_the_last_segment(rolls: bool) -> None:
    files = MemoryFiles()
    plain(files).close()
    for nth in range(16, 20):
        directory = opened(files)
        log = directory.open_log("a", 0, CONFIG, CLOCK)
        log.append(batch(value=b"0-%02d" % nth, timestamp=NOW_MS + nth * MINUTE_MS), 0)
        if rolls:
            log.roll()
        log.advance_high_watermark(log.end_offset)
        directory.close()
    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert [record.value for record in records(log)] == [b"0-%02d" % nth for nth in range(20)]
    known = [each.expected_seal.is_known(each.size) for each in log.segments if each.size]
    assert all(known)
    log.truncate_to(14)
    assert not log.segments.active.expected_seal.is_known(log.segments.active.size)


@pytest.mark.parametrize("damage", ["removed", "zeros", "older"])
def test_a_transaction_index_is_rebuilt_if_its_seal_is_lost_too(damage: str) -> None:
    """An index with as many entries, each of which names a marker, hides or shows other records."""
    files = MemoryFiles()
    written(files).close()
    files.remove(_path(f"{12:020}.seal"))
    path = _path(f"{12:020}.txnindex")
    content = bytearray(files.read(path))
    if damage == "removed":
        files.remove(path)
    elif damage == "zeros":
        files.write_atomic(path, bytes(len(content)))
    else:
        # The first offset of the first entry: version, producer id, first offset.
        content[2 + 8 + 7] += 1
        files.write_atomic(path, bytes(content))
    log = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert aborted(log) == EXPECTED


def test_a_manifest_without_seals_is_one_of_an_earlier_release() -> None:
    entry = LoggedState("a", 0, "-", 0, 16, 16, 0, 0, [0, 100])
    manifest = Manifest.of("d", Registration(), [entry])
    content = json.loads(manifest.encode().partition(b"\n")[2])
    content["logs"][0] = content["logs"][0][:9]
    body = json.dumps(content, separators=(",", ":")).encode()
    earlier = b"penstock-shutdown-manifest 1 %08x\n%s\n" % (crc32c(body), body)
    (read,) = Manifest.decode(earlier).logs.values()
    assert read.seals == ()
