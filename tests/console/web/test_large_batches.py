"""Batches of kilobytes that hold gigabytes: a page shows their sizes, and costs no memory and no time."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest
from starlette.testclient import TestClient

from lab.stall_meter import machine_scale
from penstock.console.kafka import reading
from penstock.console.web import message_routes
from penstock.records.codec import Codec
from tests.console.batches import batch_of, write_batches
from tests.console.messages import produce, read
from tests.console.serving import serving

SIZE = 99_000_000
COMPRESSED = [Codec.GZIP, Codec.LZ4, Codec.ZSTD]


@pytest.fixture(scope="module")
def large() -> dict[Codec, bytes]:
    """One message of 99 MB in each codec, as small as the codec makes it."""
    value = bytes(SIZE)
    return {codec: batch_of([value], codec) for codec in COMPRESSED}


@contextmanager
def peak_of() -> Iterator[list[int]]:
    """The most bytes that Python has allocated meanwhile."""
    found: list[int] = []
    tracemalloc.start()
    try:
        yield found
        found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def test_a_page_of_large_messages_shows_their_sizes(
    console: TestClient, bootstrap: str, topic: str, large: dict[Codec, bytes]
) -> None:
    # zstd: 25 messages of 99 MB each in 9 KB each
    write_batches(bootstrap, topic, [large[Codec.ZSTD]] * 25)
    produce(console, topic, "small", partition=0)
    with peak_of() as peak:
        began = time.process_time()
        page = read(console, topic, partition=0, limit=50)
        spent_s = time.process_time() - began
    assert len(page["messages"]) == 26
    assert page["messages"][0]["too_large"] == {
        "records": 1,
        "last_offset": "0",
        "stored": len(large[Codec.ZSTD]),
        "size": pytest.approx(SIZE, abs=100),
        "is_exact": True,
    }
    assert page["messages"][-1]["value"]["text"] == "small"
    assert peak[0] < 64 << 20
    assert spent_s < 5 * machine_scale()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_each_codec_stops_at_the_limit(
    console: TestClient, bootstrap: str, topic: str, large: dict[Codec, bytes], codec: Codec
) -> None:
    write_batches(bootstrap, topic, [large[codec]])
    with peak_of() as peak:
        page = read(console, topic, partition=0)
    (row,) = page["messages"]
    assert row["too_large"]["size"] >= 16 << 20
    assert row["value"] == {"kind": "null", "text": "null", "size": 0, "truncated": False}
    assert peak[0] < 64 << 20
    assert page["complete"]


def test_a_frame_that_declares_no_size_stops_at_the_limit(
    console: TestClient, bootstrap: str, topic: str
) -> None:
    """Java's producers write zstd without a content size."""
    import cramjam

    from penstock.records.batch import HEADER_SIZE, read_header
    from penstock.records.record import seal

    plain = batch_of([bytes(SIZE)])
    stream = cramjam.zstd.Compressor()
    stream.compress(plain[HEADER_SIZE:])
    header = read_header(plain)._replace(attributes=Codec.ZSTD)
    write_batches(bootstrap, topic, [seal(header, bytes(stream.finish()))] * 3)
    with peak_of() as peak:
        page = read(console, topic, partition=0)
    assert [m["too_large"]["is_exact"] for m in page["messages"]] == [False] * 3
    assert page["messages"][0]["too_large"]["size"] == 16 << 20
    assert peak[0] < 64 << 20


def test_a_batch_of_snappy_declares_its_size(console: TestClient, bootstrap: str, topic: str) -> None:
    batch = batch_of([bytes(40_000_000)], Codec.SNAPPY)
    write_batches(bootstrap, topic, [batch])
    (row,) = read(console, topic, partition=0)["messages"]
    assert row["too_large"]["is_exact"]
    assert row["too_large"]["size"] > 40_000_000


def test_a_large_message_is_refused_by_its_own_page_and_by_downloads(
    console: TestClient, bootstrap: str, topic: str, large: dict[Codec, bytes]
) -> None:
    write_batches(bootstrap, topic, [large[Codec.LZ4]])
    for path in ("messages/0/0", "messages/0/0/raw"):
        response = console.get(f"/api/topics/{topic}/{path}")
        assert response.status_code == 409
        assert response.json()["error"] == "RECORD_LIST_TOO_LARGE"
        assert "too large to show" in response.json()["message"]
    lines = console.get(f"/api/topics/{topic}/export", params={"partition": 0}).text.splitlines()
    assert json.loads(lines[0])["too_large"]["records"] == 1


def test_a_search_counts_unsearchable_batches(
    console: TestClient,
    bootstrap: str,
    topic: str,
    large: dict[Codec, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_batches(bootstrap, topic, [large[Codec.GZIP]] * 2)
    produce(console, topic, "wanted", partition=0)
    with monkeypatch.context() as patched:
        # A busy machine takes longer than a page may.
        patched.setattr(message_routes, "_DECODE_S", 60.0)
        page = read(console, topic, partition=0, filter="wanted")
    assert [m["value"]["text"] for m in page["messages"]] == ["wanted"]
    assert page["oversized"] == 2
    write_batches(bootstrap, topic, [large[Codec.GZIP]] * 38)
    page = read(console, topic, partition=0, filter="missing")
    assert 0 < page["oversized"] <= 40, "batches that are read again count once"


def test_older_pages_go_on_behind_messages_that_fill_a_page(
    console: TestClient, bootstrap: str, topic: str
) -> None:
    """A window that exceeds the limit was read again and again, and never showed its newest messages."""
    write_batches(bootstrap, topic, [batch_of([bytes(6_000_000)])] * 9)
    seen: list[int] = []
    cursor: dict[str, Any] = {}
    for _ in range(9):
        page = read(console, topic, partition=0, limit=50, **cursor)
        seen = [int(m["offset"]) for m in page["messages"]] + seen
        cursor = {"cursor": page["cursor"], "direction": "older"}
        if page["complete"]:
            break
    assert seen == list(range(9))


def test_many_tiny_records_end_the_page_inside_a_batch(
    console: TestClient, bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine does not read so many records in the time of a page.
    monkeypatch.setattr(reading, "SECONDS_MAX", 60.0)
    write_batches(bootstrap, topic, [batch_of([b""] * 150_000, Codec.ZSTD)] * 2)
    first = read(console, topic, partition=0, **{"from": "oldest"}, filter="offset = 299999")
    assert first["limited"] and first["scanned"] == 200_000
    second = read(
        console, topic, partition=0, **{"from": "oldest"}, filter="offset = 299999", cursor=first["cursor"]
    )
    assert [m["offset"] for m in second["messages"]] == ["299999"]
    write_batches(bootstrap, topic, [batch_of([b""] * 200_001, Codec.ZSTD)])
    newest = read(console, topic, partition=0, limit=1)["messages"][0]
    assert newest["too_large"]["records"] == 200_001


def test_nested_json_is_not_expanded(console: TestClient, topic: str) -> None:
    """40 KB of JSON at depth 900 became 37 MB of indentation."""
    value = "[" * 900 + "1," * 20_000 + "1" + "]" * 900
    produce(console, topic, value, partition=0)
    with peak_of() as peak:
        (row,) = read(console, topic, partition=0)["messages"]
    assert row["value"]["kind"] == "json" and row["value"]["truncated"]
    assert peak[0] < 8 << 20


def test_a_nested_request_is_a_bad_request(console: TestClient, topic: str) -> None:
    nested = "[" * 100_000 + "]" * 100_000
    body = f'{{"key": {{}}, "value": {{}}, "more": {nested}}}'
    response = console.post(f"/api/topics/{topic}/messages", content=body)
    assert (response.status_code, response.json()["error"]) == (400, "BadInput")
    value = {"text": nested, "format": "json"}
    response = console.post(f"/api/topics/{topic}/messages", json={"key": {"text": ""}, "value": value})
    assert (response.status_code, response.json()["error"]) == (400, "BadInput")


@pytest.mark.parametrize("cursor", ["0:99999999999999999999", "0:-1", "0", "x:y", "0:1:2"])
def test_an_invented_cursor_is_a_bad_request(console: TestClient, topic: str, cursor: str) -> None:
    response = console.get(f"/api/topics/{topic}/messages", params={"cursor": cursor})
    assert (response.status_code, response.json()["error"]) == (400, "BadInput")


def test_other_requests_are_answered_while_messages_are_unpacked(
    console: TestClient, bootstrap: str, topic: str
) -> None:
    """Unpacking runs in worker threads: the event loop answers others meanwhile."""
    write_batches(bootstrap, topic, [batch_of([bytes(15_000_000)], Codec.GZIP)] * 8)
    write_batches(bootstrap, topic, [batch_of([b"x" * 20] * 190_000, Codec.ZSTD)], partition=1)
    with serving(bootstrap) as url:
        ended = threading.Event()

        def view() -> None:
            for query in ("partition=0", "partition=1&filter=missing", "partition=0&filter=missing"):
                with urlopen(f"{url}/api/topics/{topic}/messages?{query}", timeout=60) as answer:
                    answer.read()
            ended.set()

        ask(url)
        began = time.monotonic()
        viewer = threading.Thread(target=view)
        viewer.start()
        waits = [ask(url)]
        while not ended.is_set():
            waits.append(ask(url))
        viewer.join()
        viewed_s = time.monotonic() - began
    # Each view is a third of the time, or more. On a busy machine all of it takes longer.
    assert max(waits) < max(0.5, viewed_s / 10)
    assert len(waits) > 5


def ask(url: str) -> float:
    began = time.monotonic()
    with urlopen(Request(f"{url}/api/session"), timeout=60) as answer:
        answer.read()
    return time.monotonic() - began


def test_a_live_tail_shows_sizes_and_goes_on(
    bootstrap: str, console: TestClient, topic: str, large: dict[Codec, bytes]
) -> None:
    with serving(bootstrap) as url, urlopen(f"{url}/api/topics/{topic}/tail?partition=0", timeout=60) as tail:
        while b"data: " not in tail.readline():
            """The first event has no messages: from here on none is missed."""
        write_batches(bootstrap, topic, [large[Codec.LZ4], batch_of([b"after"])])
        rows = shown(tail)
        assert next(row for row in rows if row["too_large"] is not None)["offset"] == "0"
        assert next(row for row in rows if row["value"]["text"] == "after")["offset"] == "1"


def shown(tail: Any) -> Iterator[Any]:
    """The messages of a live tail; an event has one or more."""
    while line := tail.readline():
        if line.startswith(b"data: "):
            yield from json.loads(line[len(b"data: ") :])["messages"]
