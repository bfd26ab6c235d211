"""Scans of tiered topics: the archive and the brokers together, compared with the brokers alone."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.broker.replica.partition import Partition
from penstock.reading.errors import DataLost, ReadingError
from penstock.reading.fetching import RangeReader
from penstock.reading.leader_epochs import EpochEnd
from penstock.spark import readers
from penstock.spark import tiered as tiered_parts
from penstock.spark.archives import RangeTask
from penstock.testing import BrokerThread, broker
from tests.backup.clusters import transactional
from tests.backup.stores import s3_here
from tests.broker.app.tiered_topics import TIERED, tiered
from tests.spark.topics import Topics, batch_rows, schema, source, task_rows
from tests.waiting import eventually

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
COMMITTED = {"kafka__isolation__level": "read_committed"}


class Tiered(NamedTuple):
    """A broker, its archive, and topics of which it has only the ends."""

    running: BrokerThread
    topics: Topics
    archive: Path

    def wire(self, **options: str) -> list[dict[str, Any]]:
        return batch_rows(self.running.bootstrap, **options)

    def scan(self, **options: str) -> list[dict[str, Any]]:
        return batch_rows(self.running.bootstrap, **{"archive": str(self.archive)} | options)

    def tasks(self, **options: str) -> list[RangeTask]:
        options = {"archive": str(self.archive)} | options
        wanted = schema(headers=options.pop("includeHeaders", "") == "true")
        headers = {"includeHeaders": "true"} if "headers" in wanted.fieldNames() else {}
        found = source(self.running.bootstrap, **options, **headers).reader(wanted).partitions()
        assert all(isinstance(each, RangeTask) for each in found)
        return list(found)  # type: ignore[arg-type]

    def local_start(self, topic: str) -> int:
        found = self.running.broker.stages.storage.partitions.find(topic, 0)
        assert isinstance(found, Partition)
        return found.log.local_log_start_offset


def create(topics: Topics, name: str, **more: str) -> None:
    configs = {**TIERED, "local.retention.bytes": "0", "retention.ms": "-1", **more}
    topics.create(name, 1, **{key.replace(".", "_"): value for key, value in configs.items()})


@pytest.fixture(scope="module")
def freed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    archive = tmp_path_factory.mktemp("archive")
    with broker(config=tiered(archive)) as running:
        made = Tiered(running, Topics(running.bootstrap), archive)
        for name in ("plain", "transactions"):
            create(made.topics, name)
        create(made.topics, "packed", **{"internal.segment.bytes": "5000"})
        for n in range(30):
            made.topics.fill("plain", [b"%d" % n * 60], key=b"k%d" % n, headers=[("n", b"%d" % n)])
            settings = {"compression.type": ["gzip", "snappy", "lz4", "zstd"][n % 4]}
            made.topics.fill("packed", [b"%d %d" % (n, i) * 9 for i in range(50)], settings=settings)
        fill_transactions(running.bootstrap)
        # Behind the first long transaction, which is left to the brokers until it ends.
        for name, least in (("plain", 10), ("packed", 10), ("transactions", 40)):
            eventually(lambda name=name, least=least: made.local_start(name) > least)  # type: ignore[misc]
        yield made


def fill_transactions(bootstrap: str) -> None:
    """One producer aborts and commits in turn, within the longer transactions of another one."""
    short, long = transactional(bootstrap, "short"), transactional(bootstrap, "long")
    for n in range(24):
        if n % 6 == 0:
            long.begin_transaction()
        long.produce("transactions", b"long %d" % n * 20)
        long.flush(30)
        short.begin_transaction()
        short.produce("transactions", b"short %d" % n * 20)
        short.flush(30)
        short.abort_transaction(30) if n % 2 else short.commit_transaction(30)
        if n % 6 == 5:
            long.abort_transaction(30) if n % 4 == 3 else long.commit_transaction(30)
    for n in range(8):
        short.begin_transaction()
        short.produce("transactions", b"last %d" % n * 60)
        short.commit_transaction(30)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The offsets that brokers are asked for."""
    asked: list[range] = []

    class Noted(RangeReader):
        def read(self) -> Iterator[Any]:
            asked.append(range(self.wanted.start, self.wanted.stop))
            return super().read()

    monkeypatch.setattr(readers, "RangeReader", Noted)
    return asked


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("topic", ["plain", "packed", "transactions"])
def test_a_scan_has_the_rows_of_the_brokers_in_their_order(
    freed: Tiered, topic: str, isolation: str, fetched: list[range]
) -> None:
    """Most of them come from the archive, and the brokers are asked only for what is behind it."""
    options = {"subscribe": topic, "includeHeaders": "true", "kafka__isolation__level": isolation}
    expected = freed.wire(**options)
    (task,) = freed.tasks(**options)
    assert task.part is not None
    assert (task.start, task.part.first) == (0, 0)
    assert task.stop > task.part.stop >= freed.local_start(topic) // 2
    for archive in (str(freed.archive), "auto"):
        fetched.clear()
        assert freed.scan(**options | {"archive": archive}) == expected
        assert fetched == [range(task.part.stop, task.stop)]


def test_small_tasks_read_the_archive_the_border_and_the_log(freed: Tiered) -> None:
    expected = freed.wire(subscribe="packed", **COMMITTED)
    tasks = freed.tasks(subscribe="packed", maxRecordsPerPartition="11", **COMMITTED)
    kinds = {(each.part is not None, each.part is not None and each.part.stop == each.stop) for each in tasks}
    assert len(tasks) > 100 and {(True, True), (False, False)} <= kinds
    found = freed.scan(subscribe="packed", maxRecordsPerPartition="11", **COMMITTED)
    assert sorted(found, key=lambda row: row["offset"]) == expected


def test_columns_and_times_of_a_scan(freed: Tiered) -> None:
    for columns in ("offset", "value", "timestamp,partition"):
        options = {"subscribe": "transactions", "columns": columns, **COMMITTED}
        assert freed.scan(**options) == freed.wire(**options)
    rows = freed.wire(subscribe="plain")
    since = str(round(rows[12]["timestamp"].timestamp() * 1000))
    assert freed.scan(subscribe="plain", startingTimestamp=since) == freed.wire(
        subscribe="plain", startingTimestamp=since
    )


def test_the_backlog_of_a_stream_comes_from_the_archive_and_its_end_from_brokers(freed: Tiered) -> None:
    options = {"archive": str(freed.archive), "subscribe": "plain", "startingOffsets": "earliest"}
    reader = source(freed.running.bootstrap, **options).streamReader(schema())
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    (task,) = reader.partitions(begin, end)
    assert isinstance(task, RangeTask) and task.part is not None
    sent, task = pickle.loads(pickle.dumps((reader, task)))
    assert list(task_rows(sent, [task])) == freed.wire(subscribe="plain")
    last = {"plain": {"0": end["plain"]["0"] - 1}}
    # At the end of the log not even the store is looked at: this address has none.
    far = source(freed.running.bootstrap, **options | {"archive": "/nowhere"}).streamReader(schema())
    (task,) = far.partitions(last, end)
    assert isinstance(task, RangeTask) and task.part is None
    with pytest.raises(ReadingError, match=r"^the archive /nowhere: there is no archive"):
        far.partitions(begin, end)


def test_records_below_the_log_start_are_lost_for_scans_as_well(freed: Tiered) -> None:
    name = "shortened"
    create(freed.topics, name)
    for n in range(30):
        freed.topics.fill(name, [b"%d" % n * 60])
    eventually(lambda: freed.local_start(name) > 12)
    freed.topics.cut(name, 0, 7)
    start = {"subscribe": name, "startingOffsets": json.dumps({name: {"0": 3}})}
    with pytest.raises(DataLost, match="offsets 3 to 7 are gone"):
        freed.scan(**start)
    kept = {**start, "failOnDataLoss": "false"}
    rows = freed.scan(**kept)
    assert rows == freed.wire(**kept)
    assert [row["offset"] for row in rows] == list(range(7, 30))


def test_an_archive_with_another_leader_epoch_ends_at_the_local_log_start(
    freed: Tiered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an unclean election: below the local log start brokers read the archive, too."""

    def other_epoch(_: Any, epochs: dict[Any, int]) -> dict[Any, EpochEnd]:
        return {partition: EpochEnd(epoch, 1) for partition, epoch in epochs.items()}

    expected = freed.wire(subscribe="plain")
    monkeypatch.setattr(tiered_parts, "end_offsets", other_epoch)
    (task,) = freed.tasks(subscribe="plain")
    assert task.part is not None and task.part.stop == freed.local_start("plain")
    assert freed.scan(subscribe="plain") == expected


def test_topics_without_copies_are_read_from_brokers(freed: Tiered) -> None:
    freed.topics.create("local", 2)
    freed.topics.fill("local", [b"1", b"2"])
    assert all(task.part is None for task in freed.tasks(subscribe="local"))
    assert freed.scan(subscribe="local") == freed.wire(subscribe="local")


def test_a_broker_without_an_archive_is_read_over_the_wire() -> None:
    with broker() as running:
        topics = Topics(running.bootstrap)
        topics.create("t", 1)
        topics.fill("t", [b"1"])
        assert len(batch_rows(running.bootstrap, subscribe="t", archive="auto")) == 1


def test_a_scan_of_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_here(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        address = "s3://archive/tier"
        config = tiered(tmp_path) | {"penstock.remote.log.address": address}
        with broker(config=config) as running:
            topics = Topics(running.bootstrap)
            create(topics, "t")
            for n in range(30):
                topics.fill("t", [b"%d" % n * 60])
            made = Tiered(running, topics, tmp_path)
            eventually(lambda: made.local_start("t") > 12)
            (task,) = made.tasks(subscribe="t", archive="auto")
            assert task.part is not None and task.part.place.address == address
            assert made.scan(subscribe="t", archive="auto") == made.wire(subscribe="t")
            options = tmp_path / "store.config"
            options.write_text("".join(f"{name}={value}\n" for name, value in environment.items()))
            for name in environment:
                monkeypatch.delenv(name)
            by_file = {"archive": address, "archiveStoreConfig": str(options)}
            assert made.scan(subscribe="t", **by_file) == made.wire(subscribe="t")
