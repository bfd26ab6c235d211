from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import MisusedClient, Record
from penstock.client.message import delayed


def test_headers_without_a_delay_stay_as_they_are() -> None:
    headers = {"a": b"1"}
    assert delayed(headers, None, None) is headers


def test_the_time_of_delivery_is_a_header() -> None:
    at = datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert delayed({"a": "1"}, None, at) == [("a", b"1"), ("penstock-deliver-at", b"1896091200000")]
    assert Record(value=b"v", deliver_at=at).headers == [("penstock-deliver-at", b"1896091200000")]


def test_a_delay_counts_from_now() -> None:
    before = datetime.now(UTC)
    headers = dict(Record(value=b"v", delay=60).headers)
    assert (
        -0.001
        <= int(headers["penstock-deliver-at"] or b"") / 1000 - (before + timedelta(seconds=60)).timestamp()
        < 10
    )


def test_bad_delays() -> None:
    with pytest.raises(MisusedClient, match="exclude each other"):
        delayed((), 1.0, datetime.now(UTC))
    with pytest.raises(MisusedClient, match="time zone"):
        delayed((), None, datetime(2030, 1, 1))
