"""Bytes of messages as pages show them: nothing is lost, nothing is markup, nothing is invisible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.views.payloads import (
    Decoded,
    exported,
    hex_dump,
    iso,
    message_view,
    schema_id,
    show,
    visible,
)
from penstock.records.record import Record


def test_json_keeps_every_digit() -> None:
    shown = show(b'{"id":9007199254740993123,"x":1.10}')
    assert shown["kind"] == "json"
    assert '"id": 9007199254740993123' in shown["text"]
    assert '"x": 1.10' in shown["text"]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, "null"),
        (b"", "empty"),
        (b"hello", "text"),
        (b"{broken", "text"),
        (b"\x00\x01\x02\xff", "bytes"),
        (b"\x00\x01\x02\x03", "bytes"),
        ("grüße".encode(), "text"),
        (b"-", "text"),
    ],
)
def test_kinds(data: bytes | None, kind: str) -> None:
    assert show(data)["kind"] == kind


def test_a_format_can_be_chosen() -> None:
    assert show(b'{"a":1}', wanted="text")["text"] == '{"a":1}'
    assert show(b"ab", wanted="bytes")["text"] == f"00000000  {'61 62':<47}  ab"
    assert show(b"\xff", wanted="text")["text"] == "�"


def test_long_payloads_are_truncated_and_marked() -> None:
    shown = show(b"x" * 10_000, limit=100)
    assert (len(shown["text"]), shown["size"], shown["truncated"]) == (100, 10_000, True)
    assert show(b"\xff" * 10_000, limit=100)["truncated"]
    assert not show(b"short", limit=100)["truncated"]


def test_hidden_characters_become_visible() -> None:
    assert visible("a\x00b\u202ec\x7f\n") == "a␀b⟨U+202E⟩c␡\n"


def test_markup_stays_text() -> None:
    assert show(b"<script>alert(1)</script>")["text"] == "<script>alert(1)</script>"


def test_a_schema_decodes_bytes() -> None:
    shown = show(b"\x00\x00\x00\x00\x01x", decode=lambda _: Decoded("orders-value 1", b'{"n":1}'))
    assert (shown["kind"], shown["schema"], shown["text"]) == ("schema", "orders-value 1", '{\n  "n": 1\n}')


def test_a_message_has_strings_for_int64_and_a_trace() -> None:
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    record = Record(2**62 + 1, 1_700_000_000_123, b"k", None, (("traceparent", trace), ("n", None)))
    shown = message_view(4, record)
    assert shown["offset"] == str(2**62 + 1)
    assert shown["timestamp"] == "2023-11-14T22:13:20.123Z"
    assert shown["tombstone"]
    assert shown["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert shown["headers"][1]["value"]["kind"] == "null"
    assert not message_view(0, Record(0, 0, None, None))["tombstone"]


def test_times_out_of_range_are_none() -> None:
    assert iso(-1) is None
    assert iso(2**62) is None


@given(st.binary(max_size=300) | st.none(), st.sampled_from(["auto", "json", "text", "bytes"]))
def test_any_bytes_can_be_shown(data: bytes | None, wanted: str) -> None:
    shown = show(data, 50, wanted)
    assert len(shown["text"]) <= 400
    assert shown["size"] == len(data or b"")


@given(st.binary(max_size=100))
def test_a_dump_has_all_bytes(data: bytes) -> None:
    digits = "".join(line[10:57].replace(" ", "") for line in hex_dump(data).splitlines())
    assert bytes.fromhex(digits) == data


def test_a_download_loses_nothing() -> None:
    record = Record(5, 6, b"\xff", b"text", (("h", b"\xfe"),))
    assert exported(1, record) == {
        "partition": 1,
        "offset": 5,
        "timestamp": 6,
        "key": {"base64": "/w=="},
        "value": "text",
        "headers": [["h", {"base64": "/g=="}]],
    }


def test_bytes_may_name_a_schema() -> None:
    assert show(b"\x00\x00\x00\x00\x07\xff\xfe")["schema_id"] == 7
    assert "schema_id" not in show(b"\x01\x00\x00\x00\x07\xff\xfe")
    assert "schema_id" not in show(b"\x00\x01\x02\x03\x04\xff\xfe")  # 16,909,060: hardly a schema
    assert schema_id(b"\x00\x00\x00\x00\x07") is None
