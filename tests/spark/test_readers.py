"""The readers on a live broker, as Spark calls them, without Spark around them."""

from __future__ import annotations

import gc
import pickle
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import types as sql
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from penstock.model.errors import ApiError, ErrorCode
from penstock.net.peer_errors import PeerLost
from penstock.reading import fetching
from penstock.reading.connection import Connection, close_clusters
from penstock.spark import readers
from penstock.spark.errors import DataLost, WrongOption
from penstock.spark.options import ReadOptions
from penstock.spark.readers import FilteringReader, StreamReader
from penstock.testing import BrokerThread, broker
from tests.spark.topics import Topics, batch_rows, schema, source, task_rows

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
#: Long enough for any answer, short enough to wait for one that never comes.
IMPATIENT = {"kafka__default__api__timeout__ms": "2500"}


def values(rows: list[dict[str, Any]], partition: int = 0) -> list[bytes]:
    """The values of one partition, in order."""
    of_it = [row for row in rows if row["partition"] == partition]
    return [row["value"] for row in sorted(of_it, key=lambda row: row["offset"])]


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def offsets(topic: str, *ends: int) -> dict[str, dict[str, int]]:
    return {topic: {str(partition): end for partition, end in enumerate(ends)}}


def test_all_columns(topics: Topics, topic: str) -> None:
    topics.fill(topic, [b"v"], 1, key=b"k", timestamp=1234, headers=[("h", b"x"), ("h", None)])
    topics.fill(topic, [None], 1, timestamp=5)
    first, second = batch_rows(topics.bootstrap, subscribe=topic, includeHeaders="true")
    assert first["timestamp"].timestamp() == 1.234
    del first["timestamp"]
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
    }
    assert (second["key"], second["value"], second["offset"], second["headers"]) == (None, None, 1, None)
    assert "headers" not in batch_rows(topics.bootstrap, subscribe=topic)[0]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(topics: Topics, topic: str, codec: str) -> None:
    sent = [b"%d " % number * 50 for number in range(1000)]
    topics.fill(topic, sent, settings={"compression.type": codec, "linger.ms": 50})
    assert values(batch_rows(topics.bootstrap, subscribe=topic)) == sent


def test_values_larger_than_a_fetch(topics: Topics, topic: str) -> None:
    topics.configure(topic, max_message_bytes=str(8 << 20))
    sent = [bytes([number]) * size for number, size in enumerate([10, 1 << 20, 5 << 20, 1 << 20, 10])]
    topics.fill(topic, sent)
    assert values(batch_rows(topics.bootstrap, subscribe=topic)) == sent


def test_a_worker_keeps_its_loaded_modules_out_of_garbage_collections(topics: Topics, topic: str) -> None:
    topics.fill(topic, [b"v"])
    readers._spare_what_is_loaded.cache_clear()
    gc.unfreeze()
    try:
        batch_rows(topics.bootstrap, subscribe=topic)
        spared = gc.get_freeze_count()
        assert spared > 10_000, "modules are most of what there is"
        batch_rows(topics.bootstrap, subscribe=topic)
        assert gc.get_freeze_count() <= spared, "what a task leaves behind is garbage"
    finally:
        gc.unfreeze()


def test_exact_offsets(topics: Topics, topic: str) -> None:
    for partition in range(3):
        topics.fill(topic, numbers(10), partition)
    start = f'{{"{topic}":{{"0":3,"1":-2,"2":9}}}}'
    end = f'{{"{topic}":{{"0":5,"1":2,"2":-1}}}}'
    rows = batch_rows(topics.bootstrap, subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert [values(rows, partition) for partition in range(3)] == [[b"3", b"4"], [b"0", b"1"], [b"9"]]
    with pytest.raises(WrongOption, match=f"{topic}-1, {topic}-2"):
        batch_rows(topics.bootstrap, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":3}}}}')


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": 11}, "the start offset 11 of {}-0 is greater than its end offset 10"),
        (
            {"startingOffsets": 7, "endingOffsets": 3},
            "the start offset 7 of {}-0 is greater than its end offset 3",
        ),
    ],
)
def test_a_start_after_the_end_is_refused(
    topics: Topics, topic: str, options: dict[str, int], message: str
) -> None:
    """As by Spark's connector: RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET."""
    topics.fill(topic, numbers(10))
    texts = {name: f'{{"{topic}":{{"0":{offset}}}}}' for name, offset in options.items()}
    with pytest.raises(WrongOption, match=message.format(topic)):
        batch_rows(topics.bootstrap, assign=f'{{"{topic}":[0]}}', **texts)
    at_end = f'{{"{topic}":{{"0":10}}}}'
    assert batch_rows(topics.bootstrap, assign=f'{{"{topic}":[0]}}', startingOffsets=at_end) == []


def test_offsets_by_time(topics: Topics, topic: str) -> None:
    for number in range(10):
        topics.fill(topic, numbers(1, number), timestamp=1000 + number * 10)
    options = {"assign": f'{{"{topic}":[0]}}'}
    middle = batch_rows(topics.bootstrap, startingTimestamp="1031", endingTimestamp="1060", **options)
    assert values(middle) == numbers(2, 4)
    times = {
        "startingOffsetsByTimestamp": f'{{"{topic}":{{"0":1080}}}}',
        "endingOffsetsByTimestamp": f'{{"{topic}":{{"0":9999}}}}',
    }
    assert values(batch_rows(topics.bootstrap, **options, **times)) == numbers(2, 8)
    with pytest.raises(WrongOption, match=f"{topic}-0 has nothing at or after timestamp 2000"):
        batch_rows(topics.bootstrap, startingTimestamp="2000", **options)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch_rows(topics.bootstrap, startingTimestamp="2000", **latest, **options) == []


def test_selections(topics: Topics, topic: str) -> None:
    topics.fill(topic, numbers(2), 0)
    topics.fill(topic, numbers(3), 2)
    assert len(batch_rows(topics.bootstrap, subscribePattern=f"{topic[2:]}$")) == 5
    assert batch_rows(topics.bootstrap, subscribePattern=f"^{topic[2:]}$") == []
    assert len(batch_rows(topics.bootstrap, assign=f'{{"{topic}":[2]}}')) == 3
    with pytest.raises(WrongOption, match="UNKNOWN_TOPIC_OR_PARTITION: the cluster has no nowhere"):
        batch_rows(topics.bootstrap, subscribe=f"{topic},nowhere")
    with pytest.raises(WrongOption, match=f"the cluster has no {topic}-3"):
        batch_rows(topics.bootstrap, assign=f'{{"{topic}":[3]}}')


def test_nothing_to_read(topics: Topics, topic: str) -> None:
    reader = source(topics.bootstrap, subscribe=topic).reader(schema())
    assert reader.partitions() == []
    assert list(task_rows(reader, [InputPartition(None)])) == [], "as Spark requests then"


def test_tasks_of_limited_size(topics: Topics, topic: str) -> None:
    topics.fill(topic, numbers(100))
    reader = source(topics.bootstrap, subscribe=topic, maxRecordsPerPartition="30").reader(schema())
    tasks = reader.partitions()
    assert len(tasks) == 4
    # both travel to a worker
    reader, tasks = pickle.loads(pickle.dumps((reader, tasks)))
    assert values(list(task_rows(reader, tasks))) == numbers(100)
    wider = source(topics.bootstrap, subscribe=topic, minPartitions="7").reader(schema())
    assert len(wider.partitions()) == 7


def test_compacted_topics_have_gaps(topics: Topics, topic: str) -> None:
    for number in range(20):
        topics.fill(topic, numbers(1, number), key=b"same" if number % 2 else b"%d" % number)
    topics.configure(
        topic,
        cleanup_policy="compact",
        segment_ms="1",
        min_cleanable_dirty_ratio="0",
        segment_bytes="1048576",
    )
    deadline = time.monotonic() + 60
    while True:
        # rolls the segment with what came before, which only then can be cleaned
        topics.fill(topic, [b"last"], key=b"last")
        rows = batch_rows(topics.bootstrap, subscribe=topic)
        if [value for value in values(rows) if value != b"last"] == [*numbers(20)[::2], b"19"]:
            break
        assert time.monotonic() < deadline, "it was not compacted"
        time.sleep(0.05)
    found = sorted(row["offset"] for row in rows if row["offset"] < 20)
    assert found == [*range(0, 20, 2), 19]
    tasks = batch_rows(topics.bootstrap, subscribe=topic, maxRecordsPerPartition="1")
    assert sorted(row["offset"] for row in tasks) == sorted(row["offset"] for row in rows)


def test_retention_loss(topics: Topics, topic: str) -> None:
    topics.fill(topic, numbers(10))
    reader = source(topics.bootstrap, subscribe=topic).reader(schema())
    careless = source(topics.bootstrap, subscribe=topic, failOnDataLoss="false").reader(schema())
    tasks = reader.partitions()
    topics.cut(topic, 0, 6)
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 0 to 6 are gone"):
        list(task_rows(reader, tasks))
    assert values(list(task_rows(careless, tasks))) == numbers(4, 6)
    topics.cut(topic, 0, 10)
    assert list(task_rows(careless, tasks)) == []


def test_a_topic_that_is_gone(topics: Topics, topic: str) -> None:
    topics.fill(topic, numbers(10))
    reader = source(topics.bootstrap, subscribe=topic).reader(schema())
    careless = source(topics.bootstrap, subscribe=topic, failOnDataLoss="false").reader(schema())
    tasks = reader.partitions()
    topics.delete(topic)
    with pytest.raises(DataLost, match="the topic, or this partition of it, is gone"):
        list(task_rows(reader, tasks))
    assert list(task_rows(careless, tasks)) == []


def test_an_end_that_was_never_written(topics: Topics, topic: str) -> None:
    topics.fill(topic, numbers(3))
    options = {"assign": f'{{"{topic}":[0]}}', "endingOffsets": f'{{"{topic}":{{"0":5}}}}', **IMPATIENT}
    with pytest.raises(WrongOption, match=r"the end offset 5 of .*-0 is beyond its end, 3"):
        source(topics.bootstrap, **options).reader(schema()).partitions()
    assert values(batch_rows(topics.bootstrap, failOnDataLoss="false", **options)) == numbers(3)


def test_filters_leave_partitions_and_offsets(topics: Topics, topic: str) -> None:
    for partition in range(3):
        for number in range(10):
            topics.fill(topic, [b"%d" % number], partition, timestamp=1000 + number)

    def planned(*filters: Filter, **options: str) -> list[tuple[int, int, int]]:
        reader = source(topics.bootstrap, subscribe=topic, pushFilters="true", **options).reader(schema())
        assert isinstance(reader, FilteringReader)
        assert list(reader.pushFilters([*filters])) == [*filters], "Spark applies them all again"
        again = pickle.loads(pickle.dumps(reader))
        return sorted((each.partition, each.start, each.stop) for each in again.partitions())

    assert planned(EqualTo(("partition",), 1)) == [(1, 0, 10)]
    assert planned(GreaterThan(("offset",), 6), LessThan(("partition",), 2)) == [
        (0, 7, 10),
        (1, 7, 10),
        (2, 7, 10),
    ]
    since = datetime.fromtimestamp(1.004, UTC)
    assert planned(GreaterThanOrEqual(("timestamp",), since), EqualTo(("partition",), 0)) == [(0, 4, 10)]
    assert planned(GreaterThan(("timestamp",), datetime.fromtimestamp(9, UTC))) == []
    start = f'{{"{topic}":{{"0":5,"1":0,"2":9}}}}'
    assert planned(LessThan(("offset",), 7), startingOffsets=start) == [(0, 5, 7), (1, 0, 7)]


def test_a_reader_without_the_option_has_no_filters(topics: Topics, topic: str) -> None:
    """Spark refuses a reader with filters while its own setting is off, which is the default."""
    reader = source(topics.bootstrap, subscribe=topic).reader(schema())
    assert type(reader).pushFilters is DataSourceReader.pushFilters
    with pytest.raises(WrongOption, match="pushFilters is for batch queries"):
        source(topics.bootstrap, subscribe=topic, pushFilters="true").streamReader(schema())


def test_typed_values(topics: Topics, topic: str) -> None:
    topics.fill(topic, [b'{"a":1}', b"", b'{"a":2,"b":3}', b"{}{}", None])
    fields = sql.StructType([sql.StructField("a", sql.LongType())])
    options = source(topics.bootstrap, subscribe=topic, valueFormat="json", valueSchema="a BIGINT")
    assert options.schema().startswith("key BINARY, value STRUCT<a BIGINT>, malformed BINARY, topic STRING")
    reader = options.reader(schema(value=fields))
    rows = list(task_rows(reader, reader.partitions()))
    assert [row["value"] for row in rows] == [{"a": 1}, None, {"a": 2}, None, None]
    assert [row["malformed"] for row in rows] == [None, b"", None, b"{}{}", None]
    as_json = source(topics.bootstrap, subscribe=topic, valueFormat="json", valueSchema=fields.json())
    assert "value STRUCT<`a` bigint>" in as_json.schema()


def test_typed_values_with_their_bytes(topics: Topics, topic: str) -> None:
    sent = [b'{"a":1, "b":2}', b"", None, b"{}{}"]
    topics.fill(topic, sent)
    fields = sql.StructType([sql.StructField("a", sql.LongType())])
    options = source(
        topics.bootstrap, subscribe=topic, valueFormat="json", valueSchema="a BIGINT", includeRaw="true"
    )
    assert "malformed BINARY, raw BINARY, topic STRING" in options.schema()
    reader = options.reader(schema(value=fields, raw=True))
    rows = list(task_rows(reader, reader.partitions()))
    assert [row["raw"] for row in rows] == sent
    assert [row["value"] for row in rows] == [{"a": 1}, None, None, None]


def test_columns_of_ones_own_are_refused(topics: Topics, topic: str) -> None:
    with pytest.raises(WrongOption, match="the columns are fixed"):
        source(topics.bootstrap, subscribe=topic).reader(sql.StructType().add("value", "string"))


# -- streams ------------------------------------------------------------------------------------------


def stream(bootstrap: str, topic: str, **options: str) -> StreamReader:
    return source(bootstrap, subscribe=topic, **options).streamReader(schema())


def test_a_stream_reads_records_from_after_its_start(topics: Topics, topic: str) -> None:
    topics.fill(topic, numbers(3))
    reader = stream(topics.bootstrap, topic)
    start = reader.initialOffset()
    assert start == offsets(topic, 3, 0, 0)
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert list(reader.partitions(start, start)) == []
    topics.fill(topic, numbers(2), 1)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == reader.reportLatestOffset() == offsets(topic, 3, 2, 0)
    assert values(list(task_rows(reader, reader.partitions(start, end))), 1) == numbers(2)
    assert stream(topics.bootstrap, topic, startingOffsets="earliest").initialOffset() == offsets(
        topic, 0, 0, 0
    )


def test_new_partitions_are_read_from_their_start(topics: Topics, topic: str) -> None:
    reader = stream(topics.bootstrap, topic)
    start = reader.initialOffset()
    topics.widen(topic, 4)
    topics.fill(topic, numbers(2), 3)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == offsets(topic, 0, 0, 0, 2)
    assert values(list(task_rows(reader, reader.partitions(start, end))), 3) == numbers(2)


def test_a_maximum_is_shared_out(topics: Topics, topic: str) -> None:
    topics.fill(topic, numbers(90))
    topics.fill(topic, numbers(10), 1)
    reader = stream(topics.bootstrap, topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    start = reader.initialOffset()
    assert reader.latestOffset(start, limit) == offsets(topic, 9, 1, 0)
    # Trigger.Once: the engine's word goes before the options'
    assert reader.latestOffset(start, ReadAllAvailable()) == offsets(topic, 90, 10, 0)


def test_available_now_ends_where_it_began(topics: Topics, topic: str) -> None:
    topics.fill(topic, numbers(10))
    limits = {"maxOffsetsPerTrigger": "6", "minOffsetsPerTrigger": "6", "startingOffsets": "earliest"}
    reader = stream(topics.bootstrap, topic, **limits)
    reader.prepareForTriggerAvailableNow()
    topics.fill(topic, numbers(10, 10))
    topics.widen(topic, 4)
    at, seen = reader.initialOffset(), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        seen.append(end[topic]["0"])
        at = end
    # the minimum does not hold back the rest
    assert seen == [6, 10]


def test_a_minimum_waits_for_a_limited_time(topics: Topics, topic: str) -> None:
    settings = {
        "kafka.bootstrap.servers": topics.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    limits = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "7", "maxTriggerDelay": "10s"}
    now_s = [100.0]
    options = ReadOptions.parse(settings | limits, streaming=True)
    reader = StreamReader(options, schema(), clock=lambda: now_s[0])
    limit: ReadLimit = reader.getDefaultReadLimit()
    topics.fill(topic, numbers(1))
    at = reader.latestOffset(reader.initialOffset(), limit)
    assert at == offsets(topic, 1, 0, 0), "the first batch does not wait"
    topics.fill(topic, numbers(4))
    now_s[0] += 9
    assert reader.latestOffset(at, limit) == at
    now_s[0] += 1
    at = reader.latestOffset(at, limit)
    assert at == offsets(topic, 5, 0, 0), "enough time has passed"
    topics.fill(topic, numbers(20))
    assert reader.latestOffset(at, limit) == offsets(topic, 12, 0, 0), "enough has come"
    only_minimum = ReadOptions.parse(settings | {"minOffsetsPerTrigger": "5"}, streaming=True)
    assert StreamReader(only_minimum, schema()).getDefaultReadLimit() == ReadMinRows(5)


def test_a_stream_notices_lost_records(topics: Topics, topic: str) -> None:
    topics.fill(topic, numbers(3))
    reader = stream(topics.bootstrap, topic)
    careless = stream(topics.bootstrap, topic, failOnDataLoss="false")
    with pytest.raises(DataLost, match=f"{topic}-0 ends at 3, and 9 was reached before"):
        reader.latestOffset(offsets(topic, 9), ReadAllAvailable())
    assert careless.latestOffset(offsets(topic, 9), ReadAllAvailable()) == offsets(topic, 3, 0, 0)
    assert list(careless.partitions(offsets(topic, 9), offsets(topic, 3))) == []
    with pytest.raises(DataLost, match=f"{topic}-3 does not exist any more"):
        reader.latestOffset(offsets(topic, 3, 0, 0, 4), ReadAllAvailable())
    topics.delete(topic)
    assert careless.latestOffset(offsets(topic, 3), ReadAllAvailable()) == {}


# -- brokers that go away -----------------------------------------------------------------------------


@pytest.fixture
def mortal() -> Iterator[BrokerThread]:
    with broker(config={"num.partitions": "1"}) as running:
        yield running
    close_clusters()


def test_a_broker_that_restarts_in_the_middle(mortal: BrokerThread) -> None:
    topics = Topics(mortal.bootstrap)
    sent = [b"%d" % number + bytes(2000) for number in range(6000)]
    topics.fill("restarted", sent, settings={"message.max.bytes": 1 << 20})
    reader = source(mortal.bootstrap, subscribe="restarted").reader(schema())
    rows = task_rows(reader, reader.partitions())
    read = [next(rows)]
    mortal.stop()
    starting = threading.Timer(0.3, mortal.start)
    starting.start()
    read += rows
    starting.join()
    assert values(read) == sent


@pytest.mark.parametrize("call", ["send", "receive"])
@pytest.mark.parametrize("nth", range(1, 5))
def test_a_connection_that_ends_at_any_point(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch, call: str, nth: int
) -> None:
    """Nothing is passed over, and nothing read twice."""
    sent = [b"%d" % number + bytes(900_000) for number in range(14)]
    topics.fill(topic, sent)
    reader = source(topics.bootstrap, subscribe=topic).reader(schema())
    tasks = reader.partitions()
    calls = count(1)
    really = getattr(Connection, call)

    def fails_once(connection: Connection, *arguments: Any) -> Any:
        if next(calls) == nth:
            connection.close()
            raise PeerLost("pulled the plug")
        return really(connection, *arguments)

    monkeypatch.setattr(Connection, call, fails_once)
    assert values(list(task_rows(reader, tasks))) == sent
    assert next(calls) > nth + 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
)
def test_a_leader_that_refuses_the_request(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """The new leader gets the request again, unless that would change nothing."""
    sent = [b"%d" % number + bytes(900_000) for number in range(14)]
    topics.fill(topic, sent)
    reader = source(topics.bootstrap, subscribe=topic).reader(schema())
    tasks = reader.partitions()
    answers = count(1)
    really = fetching._only_partition

    def refuses_once(*arguments: Any) -> Any:
        if next(answers) == 2:
            raise ApiError(code)
        return really(*arguments)

    monkeypatch.setattr(fetching, "_only_partition", refuses_once)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        with pytest.raises(ApiError, match=code.name):
            list(task_rows(reader, tasks))
    else:
        assert values(list(task_rows(reader, tasks))) == sent


def test_no_broker_at_the_address(mortal: BrokerThread) -> None:
    bootstrap = mortal.bootstrap
    mortal.stop()
    with pytest.raises(Exception, match=f"{bootstrap}: cannot connect"):
        batch_rows(bootstrap, subscribe="t", **IMPATIENT)


def test_a_reader_that_turns_away_leaves_nothing_behind(topics: Topics, topic: str) -> None:
    """What it still awaited must not be taken for the answer to the next question."""
    topics.fill(topic, [bytes(100_000)] * 100)
    reader = source(topics.bootstrap, subscribe=topic).reader(schema())
    tasks = reader.partitions()
    partly = iter(reader.read(tasks[0]))
    next(partly)
    del partly
    assert len(list(task_rows(reader, tasks))) == 100


def test_only_committed_transactions(topics: Topics, topic: str) -> None:
    """Aborted and open transactions of two producers, in turn: readers of committed records see neither."""
    producers = [
        Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": f"{topic}-{number}"})
        for number in range(2)
    ]
    for producer in producers:
        producer.init_transactions(30)
    sent: dict[bool, list[bytes]] = {True: [], False: []}
    for number in range(8):
        producer, commits = producers[number % 2], number % 3 != 0
        producer.begin_transaction()
        batch = [b"%d.%d" % (number, part) for part in range(3)]
        for value in batch:
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
        sent[commits] += batch
    producers[0].begin_transaction()
    producers[0].produce(topic, b"open", partition=0)
    producers[0].flush(30)
    isolated = {"kafka__isolation__level": "read_committed"}
    for options in ({}, {"maxRecordsPerPartition": "2"}):
        assert values(batch_rows(topics.bootstrap, subscribe=topic, **isolated, **options)) == sent[True]
    everything = values(batch_rows(topics.bootstrap, subscribe=topic))
    assert sorted(everything) == sorted([*sent[True], *sent[False], b"open"])
    producers[0].abort_transaction(30)
