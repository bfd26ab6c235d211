"""Frames on a live broker: where they start and end, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.client import Registry
from penstock.frames import DataLost, WrongOption, read
from penstock.model.errors import InvalidConfig
from penstock.registry.http import RegistryRefused
from penstock.testing import BrokerThread, broker
from tests.console.registry_server import registry_server
from tests.frames.conftest import MESSAGES, NOON, PARTITIONS
from tests.spark.topics import Topics

LATER = datetime(2030, 1, 1, tzinfo=UTC)


def numbers(running: BrokerThread, topic: str, **options: Any) -> list[int]:
    """The numbers in the values of a frame, sorted."""
    table = read(topic, bootstrap=running.bootstrap, **options).to_arrow()
    return sorted(json.loads(value)["number"] for value in table["value"].to_pylist())


def test_the_columns_are_those_of_the_spark_source(running: BrokerThread, orders: str) -> None:
    frame = read(orders, bootstrap=running.bootstrap, partitions=[1], start=2, end=3)
    assert frame.to_arrow().to_pylist() == [
        {
            "key": b"k0",
            "value": b'{"number": 9}',
            "topic": orders,
            "partition": 1,
            "offset": 2,
            "timestamp": NOON + timedelta(seconds=9),
            "timestampType": 0,
        }
    ]
    assert frame.schema == frame.to_arrow().schema


def test_the_package_gives_out_read_and_asks_the_environment_for_brokers(
    running: BrokerThread, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", running.bootstrap)
    assert penstock.read(orders).to_arrow().num_rows == MESSAGES


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", range(MESSAGES)),
        (NOON + timedelta(seconds=30), "latest", range(30, MESSAGES)),
        (NOON + timedelta(microseconds=1), NOON + timedelta(seconds=5), range(1, 5)),
        (NOON.astimezone() + timedelta(seconds=38), LATER, range(38, MESSAGES)),
        (LATER, "latest", range(0)),
        (2, 3, range(8, 12)),
        (9, 1000, range(36, 40)),
        (5, 2, range(0)),
        ({0: 0, 1: 10, 2: 10, 3: 10}, {0: 1, 1: 10, 2: 10, 3: 10}, range(1)),
        ("latest", "latest", range(0)),
    ],
)
def test_start_and_end(running: BrokerThread, orders: str, start: Any, end: Any, expected: range) -> None:
    assert numbers(running, orders, start=start, end=end) == list(expected)


def test_only_the_wanted_partitions_are_read(running: BrokerThread, orders: str) -> None:
    assert numbers(running, orders, partitions=[3, 3]) == list(range(3, MESSAGES, PARTITIONS))
    assert numbers(running, orders, partitions=[2], start={2: 8}) == [34, 38]


def test_columns_are_read_in_the_wanted_order(running: BrokerThread, topics: Topics) -> None:
    topics.create("with-headers", 1)
    topics.fill("with-headers", [b"\xffa"], key=b"\xc3\xa4", headers=[("h", b"x")])
    frame = read("with-headers", bootstrap=running.bootstrap, columns=["headers", "key", "value"], text=True)
    (row,) = frame.to_arrow().to_pylist()
    assert row == {"headers": [{"key": "h", "value": b"x"}], "key": "ä", "value": "\ufffda"}
    assert list(row) == frame.schema.names
    assert frame.schema.field("key").type == pa.string()


def test_a_frame_reads_the_same_rows_each_time(running: BrokerThread, topics: Topics) -> None:
    topics.create("grows", 1)
    topics.fill("grows", [b"1", None])
    frame = read("grows", bootstrap=running.bootstrap)
    topics.fill("grows", [b"3"])
    for _ in range(2):
        assert frame.to_arrow()["value"].to_pylist() == [b"1", None]
    assert [each.stop for each in frame.ranges] == [2]


def test_deleted_records_are_left_out_or_lost(running: BrokerThread, topics: Topics) -> None:
    topics.create("cut", 1)
    topics.fill("cut", [b"0", b"1", b"2"])
    strict = read("cut", bootstrap=running.bootstrap)
    lenient = read("cut", bootstrap=running.bootstrap, fail_on_data_loss=False)
    topics.cut("cut", 0, 2)
    with pytest.raises(DataLost, match=r"offsets 0 to 2 are gone.*Pass fail_on_data_loss=False to skip them"):
        strict.to_arrow()
    assert lenient.to_arrow()["value"].to_pylist() == [b"2"]
    after = read("cut", bootstrap=running.bootstrap, start=0)
    assert after.to_arrow()["offset"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"start": "noon"}, "start must be .*not 'noon'"),
        ({"end": -1}, "end must be"),
        ({"start": True}, "start must be"),
        ({"start": datetime(2026, 1, 1)}, "start=2026-01-01T00:00:00 has no time zone"),
        ({"start": {0: 1}}, "must name every partition that is read, also 1"),
        ({"columns": ["key", "nope"]}, "columns must be some of key, value, .*, not 'nope'"),
        ({"columns": ["key", "key"]}, "each at most once"),
        ({"columns": []}, "columns must be some of"),
        ({"partitions": [7]}, "UNKNOWN_TOPIC_OR_PARTITION: the cluster has no orders-7"),
        ({"isolation": "serial"}, "isolation must be read_committed or read_uncommitted, not 'serial'"),
    ],
)
def test_invalid_arguments_are_refused(
    running: BrokerThread, orders: str, options: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(WrongOption, match=reason):
        read(orders, bootstrap=running.bootstrap, **options)


def test_a_missing_topic_and_wrong_settings_are_named(running: BrokerThread) -> None:
    with pytest.raises(WrongOption, match="the cluster has no nothing-here"):
        read("nothing-here", bootstrap=running.bootstrap)
    with pytest.raises(WrongOption, match="bootstrap: 'here' is not HOST:PORT"):
        read("orders", bootstrap="here")
    with pytest.raises(InvalidConfig, match=r"security\.protocol must be one of PLAINTEXT, SSL"):
        read("orders", config={"security.protocol": "TLS"})


def test_a_secured_cluster_is_read_with_the_settings_of_its_clients() -> None:
    pytest.importorskip("cryptography")
    with broker(secure=True) as secured:
        config = {name: str(value) for name, value in secured.client_config.items()}
        topics = Topics(secured.bootstrap, config)
        topics.create("safe", 1)
        topics.fill("safe", [b"1"], settings=config)
        frame = read("safe", bootstrap=secured.bootstrap, config=config)
        assert frame.to_arrow()["value"].to_pylist() == [b"1"]


def test_values_of_a_registry_are_structures(running: BrokerThread) -> None:
    schema = {"type": "record", "name": "Ride", "fields": [{"name": "km", "type": "int"}]}
    topics = Topics(running.bootstrap)
    topics.create("rides", 1)
    with registry_server() as served:
        rides = Registry(served.url).avro("rides-value", schema)
        topics.fill("rides", [rides.encode({"km": 1}), b"plain", None, rides.encode({"km": 2})])
        frame = read("rides", registry=served.url, text=True, bootstrap=running.bootstrap)
        assert frame.to_arrow()["value"].to_pylist() == [{"km": 1}, None, None, {"km": 2}]
        assert frame.to_arrow()["malformed"].to_pylist() == [None, b"plain", None, None]
        alone = read("rides", registry=served.url, columns=["malformed"], bootstrap=running.bootstrap)
        assert alone.to_arrow().to_pydict() == {"malformed": [None, b"plain", None, None]}
        with pytest.raises(RegistryRefused):
            read("rides", registry=served.url, subject="nothing", bootstrap=running.bootstrap)
    with pytest.raises(WrongOption, match="need registry"):
        read("rides", subject="rides-value", bootstrap=running.bootstrap)
