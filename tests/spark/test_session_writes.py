"""Writing in a real Spark session, through ours and through Spark's own Kafka connector."""

from __future__ import annotations

import pytest

from tests.spark.connectors import REFUSED, Connector, as_plain
from tests.spark.topics import Topics, batch_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HEADERS = "headers array<struct<key:string,value:binary>>"


def test_all_columns(connector: Connector, topics: Topics, topic: str) -> None:
    """What was read, values of 1 MB among it, can be written as it is: where and when it was are left out."""
    headers = [("h", b"x"), ("n", None)]
    other = f"{topic}-other"
    topics.create(other, 3, max_message_bytes=str(2 << 20))
    topics.configure(topic, max_message_bytes=str(2 << 20))
    topics.fill(topic, [b"a" * (1 << 20), None], 2, key=b"k", headers=headers)
    rows = connector.read(topic, includeHeaders="true")
    connector.write(rows, topic=other, kafka__max__request__size=str(2 << 20))
    named = connector.spark.createDataFrame(
        [("x", "key", 1, other, None), (None, None, 0, other, [("h", b"y")])],
        f"value string, key string, partition int, topic string, {HEADERS}",
    )
    connector.write(named)
    found = connector.read(other, includeHeaders="true").orderBy("partition", "offset")
    assert [as_plain(row) for row in found.select("partition", "key", "value", "headers").collect()] == [
        (0, None, None, [("h", b"y")]),
        (1, b"key", b"x", None),
        (2, b"k", b"a" * (1 << 20), headers),
        (2, b"k", None, headers),
    ]


def test_keys_have_their_place(connector: Connector, topics: Topics, topic: str) -> None:
    """The one that Java's clients give them, of which these were seen."""
    rows = [(f"key {number}", "v") for number in range(20)]
    connector.write(connector.spark.createDataFrame(rows, "key string, value string"), topic=topic)
    placed = {row["key"].decode(): row["partition"] for row in batch_rows(topics.bootstrap, subscribe=topic)}
    assert "".join(str(placed[key]) for key, _ in rows) == "12201121202210000012"


def test_both_connectors_refuse_the_same_writes(connector: Connector, topics: Topics, topic: str) -> None:
    nowhere = connector.spark.createDataFrame([("v", None)], "value string, topic string")
    with pytest.raises(REFUSED):
        connector.write(nowhere)
    for columns in ("key string", "value int", "value string, partition string"):
        rows = connector.spark.createDataFrame([], columns)
        with pytest.raises(REFUSED):
            connector.write(rows, topic=topic)
            pytest.fail(f"{columns} was written")
    with pytest.raises(REFUSED):
        connector.write(connector.spark.createDataFrame([("v",)], "value string"))
