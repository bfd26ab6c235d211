"""Streaming queries in a real Spark session, through ours and through Spark's own Kafka connector."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import functions as F

from tests.spark.connectors import REFUSED, Connector, Stream, offsets_json
from tests.spark.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def test_a_stream_and_its_restart(connector: Connector, topics: Topics, topic: str, tmp_path: Path) -> None:
    """From one topic to another in limited batches; the second run begins where the first one ended."""
    copy, checkpoint = f"{topic}-copy", tmp_path / "checkpoint"
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "45"}
    rows = connector.stream(topic, **limits).select("key", "value")
    topics.fill(topic, values(60), 0, key=b"k")
    topics.fill(topic, values(30, 60), 1, key=b"k")

    def batches() -> list[int]:
        reported = connector.write_stream(rows, checkpoint, topic=copy).recentProgress
        return [progress["numInputRows"] for progress in reported if progress["numInputRows"]]

    assert batches() == [45, 45]
    topics.widen(topic, 4)
    topics.fill(topic, values(10, 90), 3, key=b"k")
    assert batches() == [10]
    copied = connector.read(copy).select("key", F.col("value").cast("string")).collect()
    assert sorted(int(row.value) for row in copied) == list(range(100))
    assert {bytes(row.key) for row in copied} == {b"k"}


def test_a_stream_that_waits_for_enough(
    connector: Connector, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """It begins at the end, as nothing else is said. The first batch, here an empty one, does not wait."""
    topics.fill(topic, values(10))
    limits = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "7", "maxTriggerDelay": "1h"}
    stream = Stream(connector.stream(topic, **limits), tmp_path)
    query = stream.start()
    try:
        query.processAllAvailable()
        topics.fill(topic, values(3, 10))
        query.processAllAvailable()
        assert stream.batches == [[]], "too few for another one"
        topics.fill(topic, values(3, 13))
        query.processAllAvailable()
        assert stream.batches[1:] == [list(range(10, 16))]
        topics.fill(topic, values(20, 16))
        query.processAllAvailable()
    finally:
        query.stop()
    assert stream.batches[2:] == [list(range(16, 23)), list(range(23, 30)), list(range(30, 36))]


def test_a_stream_from_a_time_on(connector: Connector, topics: Topics, topic: str, tmp_path: Path) -> None:
    """Of all partitions, and of each: two sources of one query."""
    for number in range(10):
        topics.fill(topic, values(1, number), timestamp=1000 + number * 10)
    topics.fill(topic, values(2, 20), 1, timestamp=1060)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    since = connector.stream(topic, startingTimestamp="1075", **latest)
    by_partition = {"startingOffsetsByTimestamp": offsets_json(topic, 1090, 1060, 1000)}
    each = connector.stream(topic, **by_partition, **latest)
    assert Stream(since.union(each), tmp_path).run() == [[8, 9, 9, 20, 21]]


def test_a_stream_of_all_topics_that_match(
    connector: Connector, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """Those that come later are read from their beginning, wherever the others began."""
    topics.fill(topic, values(3))
    stream = Stream(connector.stream(subscribePattern=f"{topic}.*", startingOffsets="earliest"), tmp_path)
    assert stream.run() == [[0, 1, 2]]
    topics.create(f"{topic}-more", 1)
    topics.fill(f"{topic}-more", values(2, 3))
    topics.fill(topic, values(1, 5), 2)
    assert stream.run() == [[3, 4, 5]]


def test_a_stream_that_lost_records(connector: Connector, topics: Topics, topic: str, tmp_path: Path) -> None:
    assigned = {"assign": f'{{"{topic}":[0]}}', "startingOffsets": "earliest"}
    topics.fill(topic, values(10))
    strict = Stream(connector.stream(**assigned), tmp_path)
    assert strict.run() == [list(range(10))]
    topics.fill(topic, values(10, 10))
    topics.cut(topic, 0, 15)
    with pytest.raises(REFUSED):
        strict.run()
    assert Stream(connector.stream(failOnDataLoss="false", **assigned), tmp_path).run() == [
        list(range(15, 20))
    ]


def test_a_stream_has_no_end(connector: Connector, topics: Topics, topic: str, tmp_path: Path) -> None:
    """Ours refuses all that would say so; theirs passes over a time."""
    with pytest.raises(REFUSED):
        Stream(connector.stream(topic, endingOffsets=offsets_json(topic, 1, 1, 1)), tmp_path).run()
    if not connector.is_ours:
        topics.fill(topic, values(3))
        until = connector.stream(topic, startingOffsets="earliest", endingTimestamp="1")
        assert Stream(until, tmp_path).run() == [[0, 1, 2]]
