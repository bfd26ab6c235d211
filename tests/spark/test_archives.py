"""Scans of a backup, compared with reads of a broker that serves the same backup over the wire."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from penstock.reading.errors import DataLost, ReadingError, WrongOption
from penstock.spark.readers import FilteringReader
from penstock.testing import BrokerThread, broker
from tests.backup.clusters import take, transactional
from tests.spark.topics import Topics, batch_rows, schema, source, task_rows

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
START_MS = 1_700_000_000_000
TOPICS = ["plain", "packed", "compacted", "transactions", "cut", "empty"]


class Archived(NamedTuple):
    """A backup, a broker that serves it, and the time of its first cut."""

    folder: Path
    mounted: BrokerThread
    first: datetime

    def wire(self, **options: str) -> list[dict[str, Any]]:
        return batch_rows(self.mounted.bootstrap, **options)

    def scan(self, as_of: str = "latest", **options: str) -> list[dict[str, Any]]:
        """Without any broker."""
        return batch_rows("", archive=str(self.folder), asOf=as_of, **options)


def fill_transactions(bootstrap: str, topic: str, rounds: int) -> None:
    """Two producers take turns; the last transaction of the first one stays open over all of the second's."""
    first, second = transactional(bootstrap, f"{topic}-1"), transactional(bootstrap, f"{topic}-2")
    for n in range(rounds):
        for producer in (first, second):
            producer.begin_transaction()
        for producer, name in ((first, b"first"), (second, b"second"), (first, b"again")):
            for partition in (0, 1):
                producer.produce(topic, b"%s %d" % (name, n) * 30, partition=partition)
            producer.flush(30)
        second.abort_transaction(30) if n % 3 else second.commit_transaction(30)
        if n < rounds - 1:
            first.abort_transaction(30) if n % 2 else first.commit_transaction(30)


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    folder = tmp_path_factory.mktemp("archive")
    with broker(config={"log.cleaner.backoff.ms": "50", "log.retention.ms": "-1"}) as running:
        topics = Topics(running.bootstrap)
        for name in TOPICS:
            topics.create(name, 2)
        for n in range(40):
            topics.fill("plain", [b"%d" % n * 20, None], n % 2, key=b"k%d" % n, timestamp=START_MS + n)
        take(running.bootstrap, folder, segment_bytes=2000)
        first = datetime.now(UTC)
        topics.fill("plain", [b"with headers"], headers=[("a", b"1"), ("b", None)], timestamp=START_MS + 100)
        for number, codec in enumerate(CODECS):
            values = [b"%d " % n * 20 for n in range(number * 100, number * 100 + 100)]
            settings = {"compression.type": codec, "linger.ms": 50}
            topics.fill("packed", values, timestamp=START_MS + number, settings=settings)
        for n in range(30):
            topics.fill("compacted", [b"%d" % n], key=b"same" if n % 3 else b"%d" % n)
        topics.compact("compacted", [*range(0, 30, 3), 29])
        fill_transactions(running.bootstrap, "transactions", 9)
        topics.fill("cut", [b"%d" % n for n in range(20)])
        topics.cut("cut", 0, 13)
        take(running.bootstrap, folder, segment_bytes=2000)
    with broker(mount=folder) as mounted:
        yield Archived(folder, mounted, first)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_scan_has_the_rows_of_a_broker_in_their_order(archived: Archived, isolation: str) -> None:
    for name in TOPICS:
        options = {"subscribe": name, "includeHeaders": "true", "kafka__isolation__level": isolation}
        expected = archived.wire(**options)
        assert bool(expected) == (name != "empty")
        assert archived.scan(**options) == expected, name


def test_small_tasks_of_a_scan_have_the_rows_of_its_large_ones(archived: Archived) -> None:
    """Tasks begin and end within batches, and within transactions."""
    options = {"subscribe": "transactions,packed", "kafka__isolation__level": "read_committed"}
    whole = archived.scan(**options)
    parts = archived.scan(**options, maxRecordsPerPartition="7")
    placed = [(row["topic"], row["partition"], row["offset"], row["value"]) for row in parts]
    assert sorted(placed) == sorted(
        (row["topic"], row["partition"], row["offset"], row["value"]) for row in whole
    )


def test_an_earlier_moment_is_the_cut_at_or_before_it(archived: Archived) -> None:
    earlier = archived.scan(archived.first.isoformat(), subscribe="plain")
    assert len(earlier) == 80
    assert len(archived.scan(subscribe="plain")) == 81
    by_number = str(int(archived.first.timestamp() * 1000))
    assert archived.scan(by_number, subscribe="plain") == earlier
    with pytest.raises(ReadingError, match="no cut at or before this time"):
        archived.scan("2020-01-01T00:00", subscribe="plain")
    with pytest.raises(WrongOption, match="has no nowhere at this time"):
        archived.scan(subscribe="nowhere")


def test_starts_and_ends_of_a_scan_are_those_of_a_broker(archived: Archived) -> None:
    chosen: list[dict[str, str]] = [
        {
            "subscribePattern": "^p",
            "startingTimestamp": str(START_MS + 5),
            "endingTimestamp": str(START_MS + 20),
        },
        {
            "assign": '{"plain":[1]}',
            "startingOffsets": '{"plain":{"1":3}}',
            "endingOffsets": '{"plain":{"1":9}}',
        },
        {"subscribe": "plain", "startingOffsets": '{"plain":{"0":-2,"1":4}}'},
    ]
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    for options in chosen:
        expected = archived.wire(**options, **latest)
        assert expected
        assert archived.scan(**options, **latest) == expected
    beyond = {"subscribe": "plain", "endingOffsets": '{"plain":{"0":99,"1":9}}'}
    with pytest.raises(WrongOption, match="the end offset 99 of plain-0 is beyond its end"):
        archived.scan(**beyond)
    assert archived.scan(failOnDataLoss="false", **beyond) == archived.wire(failOnDataLoss="false", **beyond)
    before = {"subscribe": "cut", "startingOffsets": '{"cut":{"0":2,"1":0}}'}
    with pytest.raises(DataLost, match=r"offsets 2 to 13 are not in the backup"):
        archived.scan(**before)
    assert archived.scan(failOnDataLoss="false", **before) == archived.wire(failOnDataLoss="false", **before)


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp((START_MS + milliseconds) / 1000, UTC)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([GreaterThanOrEqual(("timestamp",), at(10)), LessThan(("timestamp",), at(12))], {10, 11, 12}),
        ([EqualTo(("timestamp",), at(3))], {3}),
        ([LessThanOrEqual(("timestamp",), at(1)), EqualTo(("partition",), 1)], {1}),
        ([GreaterThan(("offset",), 35), LessThan(("offset",), 39)], {36, 37, 38, 39}),
    ],
)
def test_filters_reach_the_scan_and_the_wire_alike(
    archived: Archived, filters: list[Filter], wanted: set[int]
) -> None:
    """Spark evaluates them again: a row on the edge may be left over, and none that is wanted is missing."""
    found = []
    for given in ({}, {"archive": str(archived.folder), "asOf": "latest"}):
        bootstrap = "" if given else archived.mounted.bootstrap
        reader = source(bootstrap, subscribe="plain", pushFilters="true", **given).reader(schema())
        assert isinstance(reader, FilteringReader)
        list(reader.pushFilters(filters))
        # Spark sends the reader to its workers.
        sent = pickle.loads(pickle.dumps(reader))
        found.append(list(task_rows(sent, reader.partitions())))
    assert found[0] == found[1]
    stamps = {round(row["timestamp"].timestamp() * 1000) - START_MS for row in found[0]}
    assert stamps == wanted


@pytest.mark.parametrize("columns", ["offset", "topic,partition", "timestamp,offset", "key", "value,offset"])
def test_chosen_columns_are_those_of_the_whole_rows(archived: Archived, columns: str) -> None:
    for topic in ("packed", "compacted", "transactions"):
        options = {"subscribe": topic, "kafka__isolation__level": "read_committed"}
        names = columns.split(",")
        whole = archived.wire(**options)
        expected = [{name: row[name] for name in row if name in names} for row in whole]
        assert archived.scan(**options, columns=columns) == expected
        assert archived.wire(**options, columns=columns) == expected


def test_damage_of_an_object_is_one_line(archived: Archived, tmp_path: Path) -> None:
    with broker() as running:
        topics = Topics(running.bootstrap)
        topics.create("t", 1)
        topics.fill("t", [b"value" * 100] * 10, timestamp=START_MS)
        take(running.bootstrap, tmp_path)
    options = {"archive": str(tmp_path), "asOf": "latest", "subscribe": "t"}
    assert len(batch_rows("", **options)) == 10
    (segment,) = tmp_path.rglob("*.segment")
    data = bytearray(segment.read_bytes())
    data[200] ^= 1
    segment.write_bytes(data)
    with pytest.raises(ReadingError, match=r"^the archive of t-0: .* is damaged") as caught:
        batch_rows("", **options)
    assert "\n" not in str(caught.value)
    segment.unlink()
    with pytest.raises(ReadingError, match=r"^the archive of t-0: .* is missing"):
        batch_rows("", **options)
    with pytest.raises(ReadingError, match="there is no archive"):
        batch_rows("", **options | {"archive": str(tmp_path / "elsewhere")})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"asOf": "latest"}, "asOf needs the option archive"),
        ({"archive": "/a", "asOf": "yesterday"}, "asOf must be a time"),
        ({"archive": "auto", "asOf": "latest"}, "not archive=auto"),
        ({"archive": "/a", "asOf": "latest", "columns": "key,nothing"}, "columns has no nothing"),
        ({"archive": "/a", "asOf": "latest", "columns": " , "}, "columns names no column"),
        (
            {"valueFormat": "json", "valueSchema": "a int", "columns": "malformed"},
            "malformed without value",
        ),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOption, match=message):
        data_source = source("localhost:1", subscribe="t", **options)
        data_source.schema()
        data_source.reader(schema())


def test_a_backup_is_not_for_streams() -> None:
    with pytest.raises(WrongOption, match="asOf is for batch queries"):
        source("", subscribe="t", archive="/a", asOf="latest").streamReader(schema())
