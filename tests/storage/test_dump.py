from __future__ import annotations

import pytest

from penstock.model.ids import TopicId
from penstock.records.codecs import Codec
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.dump import UnknownFile, dump, verify
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.segment_files import file_name
from tests.storage.logs import CLOCK, NOW_MS, PATH, Tokens, append_marker, batch, idempotent, marker, open_log

FIRST = f"{0:020d}"


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def log(files: MemoryFiles) -> Log:
    """Two segments, with everything that a log can hold."""
    log = open_log(files, index_interval_bytes=0)
    log.append(batch(2, codec=Codec.GZIP), 0)
    log.append(idempotent(0, transactional=True), 0, guard=NO_VERIFICATION)
    append_marker(log, marker(False))
    log.append(batch(timestamp=NOW_MS + 5), 3)
    log.roll()
    log.append(idempotent(1), 3)
    log.close()
    return log


def test_a_segment_is_shown_batch_by_batch(files: MemoryFiles, log: Log) -> None:
    first, second, third, fourth = dump(files, f"{log.path}/{FIRST}.log")
    assert (first["base_offset"], first["last_offset"], first["count"], first["compression"]) == (
        0,
        1,
        2,
        "gzip",
    )
    assert (second["position"], second["producer_id"], second["transactional"]) == (first["size"], 7, True)
    assert (third["control"], third["ends_transaction"], third["coordinator_epoch"]) == (True, "ABORT", 0)
    assert (fourth["leader_epoch"], fourth["max_timestamp"], fourth["timestamp_type"]) == (
        3,
        NOW_MS + 5,
        "CreateTime",
    )


def test_records_are_shown_on_request(files: MemoryFiles, log: Log) -> None:
    entries = list(dump(files, f"{log.path}/{FIRST}.log", records=True))
    shown = [entry for entry in entries if "key" in entry]
    assert [entry["offset"] for entry in shown] == [0, 1, 2, 4]
    assert (shown[1]["key"], shown[1]["value"]) == (b"k1", b"v")


def test_indexes_snapshots_and_checkpoints_are_shown(files: MemoryFiles, log: Log) -> None:
    def entries(name: str) -> list[dict[str, object]]:
        return list(dump(files, f"{log.path}/{name}"))

    batches = list(dump(files, f"{log.path}/{FIRST}.log"))
    assert entries(f"{FIRST}.index") == [
        {"offset": b["last_offset"], "position": b["position"]} for b in batches[1:]
    ]
    assert {"timestamp": NOW_MS + 5, "offset": 4} in entries(f"{FIRST}.timeindex")
    (aborted,) = entries(f"{FIRST}.txnindex")
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (7, 2, 3)
    (producer,) = entries(f"{5:020d}.snapshot")
    assert (producer["producer_id"], producer["last_sequence"], producer["last_offset"]) == (7, 0, 2)
    assert entries("leader-epoch-checkpoint") == [
        {"epoch": 0, "start_offset": 0},
        {"epoch": 3, "start_offset": 4},
    ]


def test_a_directory_is_all_of_its_files(files: MemoryFiles, log: Log) -> None:
    files.write_atomic(f"{log.path}/partition.metadata", b"version: 0\n")
    names = [entry["file"] for entry in dump(files, log.path) if "file" in entry]
    assert f"{5:020d}.log" in names and f"{FIRST}.txnindex" in names and "leader-epoch-checkpoint" in names
    assert "partition.metadata" not in names
    report = verify(files, log.path)
    assert (report.ok, report.batches, report.records) == (True, 5, 6)


def test_damage_is_shown_and_reported(files: MemoryFiles, log: Log) -> None:
    path = f"{log.path}/{FIRST}.log"
    second = list(dump(files, path))[1]["position"]
    files.open(path).pwrite(b"\xff", second + 30)
    *_, last = dump(files, path)
    assert last == {"position": second, "damaged_bytes": files.size(path) - second}
    report = verify(files, path)
    assert not report.ok
    assert str(second) in report.problems[0]


def test_every_byte_of_segments_is_described(files: MemoryFiles, log: Log) -> None:
    first, second = f"{log.path}/{FIRST}.log", f"{log.path}/{5:020d}.log"
    reported: list[int] = []
    verify(files, log.path, reported.append)
    assert len(reported) == 5  # a batch each
    assert sum(reported) == files.size(first) + files.size(second)
    files.open(first).pwrite(b"\xff", 30)
    reported.clear()
    verify(files, first, reported.append)
    assert reported == [files.size(first)]  # damage to the end


def test_an_index_is_held_against_its_segment(files: MemoryFiles, log: Log) -> None:
    for suffix in (".index", ".timeindex"):
        path = f"{log.path}/{FIRST}{suffix}"
        assert verify(files, path).ok
        good = files.read(path)
        wrong = good[:-1] + bytes([good[-1] ^ 1])
        files.write_atomic(path, wrong)
        assert not verify(files, path).ok
        files.write_atomic(path, good[:-1])
        assert not verify(files, path).ok
        files.write_atomic(path, good)


def test_offsets_that_go_back_are_reported(files: MemoryFiles) -> None:
    files.makedirs("/d")
    file = files.open(f"/d/{10:020d}.log", create=True)
    file.append(batch(base_offset=0))
    assert "cannot follow 9" in verify(files, f"/d/{10:020d}.log").problems[0]


def test_damaged_snapshots_and_checkpoints_are_reported(files: MemoryFiles, log: Log) -> None:
    for name in (f"{5:020d}.snapshot", "leader-epoch-checkpoint"):
        files.write_atomic(f"{log.path}/{name}", b"nonsense")
    assert len(verify(files, log.path).problems) == 2


def test_an_index_without_a_segment_is_reported(files: MemoryFiles, log: Log) -> None:
    files.remove(f"{log.path}/{FIRST}.log")
    assert not verify(files, f"{log.path}/{FIRST}.index").ok


@pytest.mark.parametrize("name", ["partition.metadata", "x.log", "readme"])
def test_other_files_are_refused(files: MemoryFiles, name: str) -> None:
    files.makedirs("/d")
    files.write_atomic(f"/d/{name}", b"")
    for look in (lambda: list(dump(files, f"/d/{name}")), lambda: verify(files, f"/d/{name}")):
        with pytest.raises(UnknownFile):
            look()


def test_missing_segments_are_reported_with_their_number_of_offsets() -> None:
    files = MemoryFiles()
    directory = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
    directory.create_partitions([StoredPartition("t", 0, TopicId(bytes(16)))])
    log = directory.open_log("t", 0, LogConfig(), CLOCK)
    for nth in range(10):
        if nth and nth % 2 == 0:
            log.roll()
        log.append(batch(), 0)
    directory.close()
    assert verify(files, PATH).ok
    for base_offset in (0, 4, 8):
        for suffix in (".log", ".index", ".timeindex"):
            files.remove(f"{PATH}/{file_name(base_offset)}{suffix}")
    report = verify(files, PATH)
    assert (report.ok, report.missing, report.records) == (False, 6, 4)
    assert report.problems == [
        f"{PATH}: before the first segment: offsets 0 to 1 are missing (2)",
        f"{PATH}: behind segment {file_name(2)}: offsets 4 to 5 are missing (2)",
        f"{PATH}: at the end: offsets 8 to 9 are missing (2)",
    ]


def test_a_truncated_segment_misses_offsets_and_a_compacted_one_bytes() -> None:
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(4):
        log.append(batch(), 0)
        log.append(batch(), 0)
        log.roll()
    log.close()
    first, second, *_ = log.segments
    files.open(first.path(".log")).truncate(first.size // 2)
    second.mark_compacted(4)
    files.open(second.path(".log")).truncate(second.size // 2)
    for segment in (first, second):
        for suffix in (".index", ".timeindex"):
            files.remove(segment.path(suffix))
    report = verify(files, PATH)
    assert (report.missing, report.problems) == (
        1,
        [
            f"{PATH}: behind segment {file_name(0)}: offsets 1 to 1 are missing (1)",
            f"{second.path('.log')}: {second.size // 2} bytes are left of {second.size}",
        ],
    )
