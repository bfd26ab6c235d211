"""The forms that a frame can be turned into."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from penstock.frames import Frame, read
from penstock.reading.connection import Cluster
from penstock.testing import BrokerThread
from tests.frames.conftest import MESSAGES
from tests.spark.topics import Topics


@pytest.fixture
def frame(running: BrokerThread, orders: str) -> Frame:
    return read(orders, bootstrap=running.bootstrap, text=True)


def test_batches_come_partition_by_partition_in_order(frame: Frame) -> None:
    rows = [row for batch in frame for row in batch.to_pylist()]
    places = [(row["partition"], row["offset"]) for row in rows]
    assert places == sorted(places)
    assert len(places) == MESSAGES


def test_a_frame_is_an_arrow_stream(frame: Frame) -> None:
    """The Arrow PyCapsule interface: any library that reads streams of Arrow takes a frame as it is."""
    assert pa.table(frame) == frame.to_arrow() == frame.to_reader().read_all()


def test_a_reader_that_is_left_early_leaves_no_connection(
    frame: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Cluster] = []
    close = Cluster.close

    def noted(cluster: Cluster) -> None:
        closed.append(cluster)
        close(cluster)

    monkeypatch.setattr(Cluster, "close", noted)
    batches: Any = iter(frame)
    next(batches)
    assert not closed
    batches.close()
    assert len(closed) == 1


def test_two_frames_are_read_in_turn(frame: Frame) -> None:
    pairs = list(zip(frame, frame, strict=True))
    assert len(pairs) >= 4
    assert all(first == second for first, second in pairs)


def test_pandas(frame: Frame) -> None:
    pytest.importorskip("pandas")
    found = frame.to_pandas()
    assert len(found) == MESSAGES
    assert found["key"].value_counts().to_dict() == {"k0": 14, "k1": 13, "k2": 13}


def test_polars(frame: Frame) -> None:
    pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    found: Any = frame.to_polars()
    assert found.height == MESSAGES
    assert found["timestamp"].dtype.time_zone == "UTC"


def test_a_relation_of_duckdb(frame: Frame) -> None:
    duckdb = pytest.importorskip("duckdb")
    found = frame.to_duckdb().filter("partition = 2").aggregate("count(*)").fetchall()
    assert found == [(MESSAGES // 4,)]
    with duckdb.connect() as own:
        assert frame.to_duckdb(own).aggregate("max(value)").fetchall() == [('{"number": 9}',)]


def test_a_missing_library_is_named_with_the_way_to_install_it(
    frame: Frame, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("duckdb", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match="polars is missing: pip install polars"):
        frame.to_polars()
    with pytest.raises(ModuleNotFoundError, match=r"duckdb is missing: pip install 'penstock-mq\[frames\]'"):
        frame.to_duckdb()


def test_aborted_transactions_are_hidden(running: BrokerThread, topics: Topics) -> None:
    topics.create("transactional", 1)
    settings = {"bootstrap.servers": running.bootstrap, "transactional.id": "frames", "log_level": 2}
    producer = Producer(settings)
    producer.init_transactions(60)
    for value, end in ((b"aborted", producer.abort_transaction), (b"sound", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("transactional", value)
        assert producer.flush(60) == 0
        end(60)
    expected = {"read_committed": [b"sound"], "read_uncommitted": [b"aborted", b"sound"]}
    for isolation, values in expected.items():
        options: dict[str, Any] = {"isolation": isolation}
        frame = read("transactional", bootstrap=running.bootstrap, **options)
        assert frame.to_arrow()["value"].to_pylist() == values
