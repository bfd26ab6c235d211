"""The programs and commands of the guide from SNS, on a broker and with moto."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from penstock.testing import QueueCluster
from tests.docs.migration import Guide

PAGE = "docs/migrating-from-sns.md"


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[bytes]]]:
    """The address of an HTTP server, and what it was sent."""
    received: list[bytes] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def test_the_new_programs(
    penstock_queues: QueueCluster,
    endpoint: tuple[str, list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    address, received = endpoint
    guide = Guide(PAGE, penstock_queues, monkeypatch, capfd, {"127.0.0.1:8080": address})
    guide.create("orders-placed", "webhooks", "webhooks.dead")
    assert guide.after() == [
        "billing ['order 1', 'order 2']\nshipping ['order 1', 'order 2']\n",
        "204\n",
    ]
    assert received == [b"order 7"]


def test_the_way_there_and_back(
    aws_url: str,
    penstock_queues: QueueCluster,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    guide = Guide(PAGE, penstock_queues, monkeypatch, capfd)
    names = guide.before()
    arn, url = names["subscribe"]("orders", "billing")
    names["subscribe"]("orders", "orders-bridge")
    names["sqs"].create_queue(QueueName="orders-returned")
    names["send"](arn, ["a", "b"])
    assert sorted(names["work"](url, 2)) == ["a", "b"]

    copy, start_now, back = guide.commands()
    there = copy()
    assert "copied 2 messages of SQS queue orders-bridge to topic orders-placed" in there
    assert there.splitlines()[-1].split() == ["sqs", "2", "2", "0", "0"]
    guide.replace("2025-01-15T09:00:00Z", datetime.now(UTC).isoformat())
    guide.send("orders-placed", "c")
    assert start_now().splitlines()[-1].split() == ["orders-placed", "0", "-", "2"]
    assert "copied 1 messages of topic orders-placed to SQS queue orders-returned" in back()
