"""Messages of SQS and SNS become records, and records of any content fit into SQS and come back."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge.mapping import KeyRule, from_record
from penstock.bridge.message import Bridged
from penstock.bridge.sqs_mapping import from_sqs, to_sqs

GROUP = KeyRule(natural=True)


def received(message: dict[str, Any], unwrap_sns: bool = False, rule: KeyRule = GROUP) -> Bridged:
    there = {"MessageId": "m-1", "ReceiptHandle": "r", **message}
    return from_sqs(there, queue="jobs", rule=rule, unwrap_sns=unwrap_sns, handle="r")


def record(value: bytes | None, headers: list[tuple[str, bytes]], key: bytes | None = None) -> Bridged:
    return from_record(
        topic="jobs",
        partition=0,
        offset=1,
        key=key,
        value=value,
        headers=headers,
        time_ms=1,
        handle=None,
    )


def test_a_message_of_a_fifo_queue() -> None:
    found = received(
        {
            "Body": "hello",
            "Attributes": {"MessageGroupId": "ada", "SentTimestamp": "5", "MessageDeduplicationId": "d"},
            "MessageAttributes": {
                "a": {"DataType": "String", "StringValue": "1"},
                "b": {"DataType": "Binary", "BinaryValue": b"\xff"},
            },
        }
    )
    assert (found.id, found.key, found.body, found.time_ms) == ("m-1", b"ada", b"hello", 5)
    assert dict(found.headers) == {
        "a": b"1",
        "b": b"\xff",
        "sqs-MessageGroupId": b"ada",
        "sqs-MessageDeduplicationId": b"d",
    }


def test_a_notification_of_sns_is_unwrapped() -> None:
    notification = {
        "Type": "Notification",
        "MessageId": "sns-1",
        "TopicArn": "arn:aws:sns:eu-central-1:1:orders",
        "Message": "order 7",
        "MessageAttributes": {
            "kind": {"Type": "String", "Value": "new"},
            "raw": {"Type": "Binary", "Value": base64.b64encode(b"\xff").decode()},
        },
    }
    body = json.dumps(notification)
    found = received({"Body": body}, unwrap_sns=True)
    assert (found.id, found.body) == ("sns-1", b"order 7")
    assert dict(found.headers) == {
        "sns-TopicArn": b"arn:aws:sns:eu-central-1:1:orders",
        "kind": b"new",
        "raw": b"\xff",
    }
    assert received({"Body": body}).body == body.encode()


def test_bodies_that_are_no_notification_stay_as_they_are() -> None:
    for body in ("plain", "[1]", '{"Type": "Other"}', '{"Type": "Notification"}'):
        assert received({"Body": body}, unwrap_sns=True).body == body.encode()


@pytest.mark.parametrize(
    "document",
    [
        {"Message": "a"},
        {"Message": "a", "MessageId": 7},
        {"Message": {"order": 7}, "MessageId": "m"},
        {"Message": "a", "MessageId": "m", "MessageAttributes": [1]},
        {"Message": "a", "MessageId": "m", "MessageAttributes": {"kind": "new"}},
        {"Message": "\ud800", "MessageId": "m"},
        {"Message": "a", "MessageId": "m", "MessageAttributes": {"\ud800": {"Type": "String", "Value": ""}}},
    ],
)
def test_a_body_that_looks_like_a_notification_does_not_stop_the_bridge(document: dict[str, Any]) -> None:
    body = json.dumps({"Type": "Notification", **document})
    found = received({"Body": body}, unwrap_sns=True)
    assert (found.id, found.body) == ("m-1", body.encode())


def test_a_notification_may_lack_attributes_and_have_a_value_that_is_no_base64() -> None:
    notification: dict[str, Any] = {"Type": "Notification", "MessageId": "sns-1", "Message": "a"}
    notification["MessageAttributes"] = None
    found = received({"Body": json.dumps(notification)}, unwrap_sns=True)
    assert (found.id, found.body, found.headers) == ("sns-1", b"a", ())
    notification["MessageAttributes"] = {"raw": {"Type": "Binary", "Value": "a"}}
    assert received({"Body": json.dumps(notification)}, unwrap_sns=True).headers == (("raw", b"a"),)


def test_a_body_of_deep_json_does_not_stop_the_bridge() -> None:
    body = "[" * 200_000
    assert received({"Body": body}, unwrap_sns=True).body == body.encode()


@pytest.mark.parametrize(
    "text", ["no json", "7", '["a"]', '[["a", 1]]', '[[1, "YQ=="]]', '[["\\ud800", ""]]']
)
def test_headers_of_another_program_under_the_bridges_name_are_left_out(text: str) -> None:
    attributes = {
        "penstock-bridge-headers": {"DataType": "String", "StringValue": text},
        "own": {"DataType": "String", "StringValue": "1"},
    }
    assert received({"Body": "a", "MessageAttributes": attributes}).headers == (("own", b"1"),)


def test_the_size_of_a_message_has_its_attributes() -> None:
    copy = to_sqs(record("é".encode(), [("own", b"12"), ("raw", b"\xff")]))
    plain = to_sqs(record(b"", []))
    assert copy.body == "é"
    named = sum(
        len(name) + len(each["DataType"]) + len(each.get("StringValue", "x"))
        for name, each in copy.attributes.items()
    )
    assert copy.size == 2 + named
    assert plain.size > len(plain.body)


def test_records_of_a_key_are_in_one_message_group() -> None:
    entry = to_sqs(record(b"v", [], key=b"ada")).entry(is_fifo=True)
    assert entry["MessageDeduplicationId"] == "jobs-0:1"
    assert entry["MessageGroupId"] == to_sqs(record(b"w", [], key=b"ada")).group
    assert entry["MessageGroupId"] != to_sqs(record(b"v", [], key=None)).group
    assert "MessageGroupId" not in to_sqs(record(b"v", [])).entry(is_fifo=False)


NAMES = st.one_of(st.sampled_from(["a", "b", "AWS.x", "dots..", "sp ace", ""]), st.text(max_size=5))


@given(
    st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode),
    st.lists(st.tuples(NAMES, st.binary(max_size=5)), max_size=14),
)
def test_any_record_fits_into_sqs_and_comes_back(
    value: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    copy = to_sqs(record(value, headers))
    assert copy.body and len(copy.attributes) <= 10
    there = received({"Body": copy.body, "MessageAttributes": copy.attributes})
    assert there.body == value
    assert sorted(there.headers) == sorted(headers)
    assert there.origin == "kafka"
