"""Messages of NATS and AMQP become records with headers, and records become messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge.errors import BridgeError
from penstock.bridge.mapping import (
    KeyRule,
    from_amqp,
    from_nats,
    from_record,
    key_rule,
    text_headers,
    to_amqp,
    to_nats,
)
from penstock.bridge.message import Bridged, copy_headers


def nats_message(headers: dict[str, str] | None = None, rule: KeyRule | None = None) -> Bridged:
    return from_nats(
        stream="ORDERS",
        created_ms=7,
        sequence=3,
        subject="orders.new",
        data=b"body",
        headers=headers,
        time_ms=99,
        rule=rule or KeyRule(natural=True),
        handle=None,
    )


def record(**changes: Any) -> Bridged:
    given = {
        "topic": "orders",
        "partition": 2,
        "offset": 5,
        "key": b"k",
        "value": b"v",
        "headers": [],
        "time_ms": 1,
        "handle": None,
    }
    return from_record(**{**given, **changes})


def test_a_message_of_nats() -> None:
    found = nats_message({"trace": "1"})
    assert (found.id, found.has_unique_id, found.key, found.body) == (
        "ORDERS@7:3",
        True,
        b"orders.new",
        b"body",
    )
    assert copy_headers(found) == [
        ("trace", b"1"),
        ("penstock-bridge-id", b"ORDERS@7:3"),
        ("penstock-bridge-source", b"nats"),
        ("penstock-bridge-place", b"orders.new"),
        ("penstock-bridge-time-ms", b"99"),
    ]


def test_a_stream_that_was_made_again_has_other_ids() -> None:
    other = from_nats(
        stream="ORDERS",
        created_ms=8,
        sequence=3,
        subject="s",
        data=b"",
        headers=None,
        time_ms=1,
        rule=KeyRule(),
        handle=None,
    )
    assert other.id != nats_message().id


def test_a_message_of_amqp_has_the_publishers_id_and_its_properties() -> None:
    found = from_amqp(
        queue="tasks",
        routing_key="tasks.new",
        body=b"body",
        properties={
            "message_id": "m-1",
            "content_type": "text/plain",
            "priority": 0,
            "timestamp": datetime(2030, 1, 1, tzinfo=UTC),
        },
        headers={"x": 1, "raw": b"\xff", "table": {"a": [True]}},
        rule=KeyRule(natural=True),
        handle=None,
    )
    assert (found.id, found.has_unique_id, found.key) == ("m-1", False, b"tasks.new")
    assert dict(found.headers) == {
        "x": b"1",
        "raw": b"\xff",
        "table": b'{"a": [true]}',
        "amqp-content-type": b"text/plain",
        "amqp-message-id": b"m-1",
        "amqp-routing-key": b"tasks.new",
    }
    assert found.time_ms == 1893456000000


def test_a_message_of_amqp_without_an_id_has_no_deduplication_key() -> None:
    found = from_amqp(
        queue="q", routing_key="q", body=b"", properties={}, headers=None, rule=KeyRule(), handle=None
    )
    assert found.id is None
    assert "penstock-bridge-id" not in dict(copy_headers(found))


def test_a_record_for_nats_has_the_id_that_jetstream_deduplicates_by() -> None:
    copy = to_nats(record(headers=[("a", b"1"), ("bin", b"\xff"), ("lines", b"a\r\nb"), ("none", None)]))
    assert copy.data == b"v"
    assert copy.headers["Nats-Msg-Id"] == copy.headers["penstock-bridge-id"] == "orders-2:5"
    assert (copy.headers["a"], copy.headers["bin.base64"], copy.headers["none"]) == ("1", "/w==", "")
    assert to_nats(record(headers=[("a name: x", b"1")])).headers["a_name__x"] == "1"
    assert not any("\r" in value or "\n" in value for value in copy.headers.values())


def test_properties_of_amqp_survive_the_way_there_and_back() -> None:
    there = from_amqp(
        queue="q",
        routing_key="q",
        body=b"b",
        properties={"content_type": "application/json", "reply_to": "answers", "expiration": 3.0},
        headers={},
        rule=KeyRule(),
        handle=None,
    )
    back = to_amqp(record(headers=copy_headers(there)))
    assert back.properties == {
        "content_type": "application/json",
        "reply_to": "answers",
        "message_id": "orders-2:5",
    }


@pytest.mark.parametrize("convert", [to_nats, to_amqp])
def test_a_record_without_a_value_comes_back_without_one(convert: Any) -> None:
    copy = convert(record(value=None))
    there = from_nats(
        stream="S",
        created_ms=0,
        sequence=1,
        subject="s",
        data=b"",
        headers=copy.headers,
        time_ms=0,
        rule=KeyRule(),
        handle=None,
    )
    assert there.body is None
    assert there.origin == "kafka", "a bridge does not copy it back"


def test_headers_of_an_earlier_bridge_are_not_copied() -> None:
    found = record(headers=[("penstock-bridge-source", b"nats"), ("penstock-bridge-id", b"x"), ("a", b"")])
    assert (found.origin, found.headers) == ("nats", (("a", b""),))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("none", KeyRule()),
        ("subject", KeyRule(natural=True)),
        ("header:customer", KeyRule(header="customer")),
    ],
)
def test_the_rule_for_keys(text: str, rule: KeyRule) -> None:
    assert key_rule(text, "subject") == rule


@pytest.mark.parametrize("text", ["", "header:", "group", "subject:x"])
def test_a_wrong_rule_is_named(text: str) -> None:
    with pytest.raises(BridgeError, match="is not one of none, subject, header:NAME"):
        key_rule(text, "subject")


def test_a_key_from_a_header() -> None:
    assert nats_message({"customer": "ada"}, KeyRule(header="customer")).key == b"ada"
    assert nats_message({}, KeyRule(header="customer")).key is None


@given(st.lists(st.tuples(st.text(min_size=1), st.binary())))
def test_headers_as_text_are_one_line_each(headers: list[tuple[str, bytes]]) -> None:
    found = text_headers(headers)
    assert all("\n" not in value and "\r" not in value for value in found.values())
