"""SQL over topics on a live broker, and the ranges that are read for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client import Registry
from penstock.frames.opening import endpoint_of
from penstock.reading.connection import Endpoint
from penstock.reading.errors import DataLost, WrongOption
from penstock.reading.fetching import RangeReader
from penstock.registry.settings import registry_settings
from penstock.testing import BrokerThread
from tests.console.registry_server import registry_server
from tests.frames.conftest import MESSAGES
from tests.spark.topics import Topics

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'penstock-mq[frames]'")

from penstock.frames.sql import QueryFailed, run_query


@pytest.fixture(scope="session")
def endpoint(running: BrokerThread, orders: str) -> Endpoint:
    return endpoint_of(running.bootstrap, None, 30)


@pytest.fixture
def read_ranges(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """Partition, start and stop of each range that is read."""
    found: list[tuple[int, int, int]] = []
    read = RangeReader.read

    def noted(reader: RangeReader) -> Iterator[Any]:
        found.append((reader.wanted.partition, reader.wanted.start, reader.wanted.stop))
        return read(reader)

    monkeypatch.setattr(RangeReader, "read", noted)
    return found


def rows(query: str, endpoint: Endpoint, **options: Any) -> list[dict[str, Any]]:
    result = run_query(query, endpoint, **options)
    assert result is not None
    return list(result)


def test_a_topic_is_a_table(endpoint: Endpoint) -> None:
    found = rows("select key, count(*) as n from orders group by 1 order by 1", endpoint)
    assert found == [{"key": "k0", "n": 14}, {"key": "k1", "n": 13}, {"key": "k2", "n": 13}]


def test_values_of_a_registry_have_columns(running: BrokerThread, endpoint: Endpoint) -> None:
    schema = {"type": "record", "name": "Trip", "fields": [{"name": "km", "type": "int"}]}
    topics = Topics(running.bootstrap)
    topics.create("trips", 1)
    with registry_server() as served:
        trips = Registry(served.url).avro("trips-value", schema)
        topics.fill("trips", [trips.encode({"km": km}) for km in range(5)] + [b"plain"])
        found = rows(
            "select sum(value.km)::int as km, count(malformed) as lost from trips "
            "where value.km > 1 or value is null",
            endpoint,
            registry=registry_settings({}, served.url),
        )
    assert found == [{"km": 9, "lost": 1}]


def test_json_in_values(endpoint: Endpoint) -> None:
    found = rows("select sum((value->>'$.number')::int)::int as total from Orders", endpoint)
    assert found == [{"total": sum(range(MESSAGES))}]


@pytest.mark.parametrize(
    ("condition", "count", "ranges"),
    [
        ("partition = 2", 10, [(2, 0, 10)]),
        ('partition in (0, 3) and "offset" >= 8', 4, [(0, 8, 10), (3, 8, 10)]),
        ("timestamp >= '2026-01-01 12:00:36+00'", 4, [(number, 9, 10) for number in range(4)]),
        ("timestamp > now() - interval 1 hour", 0, []),
        ("key = 'k0' and partition = 0", 4, [(0, 0, 10)]),
    ],
)
def test_brokers_are_asked_for_the_ranges_that_the_filter_leaves(
    endpoint: Endpoint,
    read_ranges: list[tuple[int, int, int]],
    condition: str,
    count: int,
    ranges: list[tuple[int, int, int]],
) -> None:
    assert rows(f"select count(*) as n from orders where {condition}", endpoint) == [{"n": count}]
    assert read_ranges == ranges


def test_a_topic_joins_itself_and_another_topic(endpoint: Endpoint, topics: Topics) -> None:
    topics.create("cust.omers", 1)
    topics.fill("cust.omers", [b"Ada"], key=b"k1")
    joined = """
        select count(*) as n, any_value(c.value) as name
        from orders a join orders b using (partition, "offset") join "cust.omers" c on a.key = c.key
    """
    assert rows(joined, endpoint) == [{"n": 13, "name": "Ada"}]


def test_headers_and_bytes(endpoint: Endpoint, topics: Topics) -> None:
    topics.create("raw", 1)
    topics.fill("raw", [b"\xff\x00"], headers=[("h", b"x")])
    assert rows("select value, headers from raw", endpoint, text=False) == [
        {"value": b"\xff\x00", "headers": [{"key": "h", "value": b"x"}]}
    ]
    assert rows("select value from raw where headers is not null", endpoint) == [{"value": "\ufffd\x00"}]


def test_an_error_of_the_query_is_one_line(endpoint: Endpoint, topics: Topics) -> None:
    with pytest.raises(QueryFailed, match="Table with name ordrs does not exist"):
        run_query("select * from ordrs", endpoint)
    with pytest.raises(QueryFailed) as refused:
        run_query("selec 1", endpoint)
    assert "\n" not in str(refused.value)


def test_topics_that_differ_by_case_alone_are_refused(endpoint: Endpoint, topics: Topics) -> None:
    for name in ("Twice", "twice"):
        topics.create(name, 1)
    with pytest.raises(WrongOption, match="tables cannot differ by case alone"):
        run_query("select * from twice", endpoint)


def test_an_empty_query_has_no_result(endpoint: Endpoint) -> None:
    assert run_query("", endpoint) is None


def test_records_that_are_gone_end_the_query(
    endpoint: Endpoint, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("goes", 1)
    topics.fill("goes", [b"0", b"1"])
    read = RangeReader.read

    def late(reader: RangeReader) -> Iterator[Any]:
        topics.cut("goes", 0, 1)
        return read(reader)

    monkeypatch.setattr(RangeReader, "read", late)
    with pytest.raises(DataLost, match="goes-0: offsets 0 to 1 are gone"):
        rows("select * from goes", endpoint)
