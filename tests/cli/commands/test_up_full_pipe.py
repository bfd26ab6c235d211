"""A broker process whose output is a pipe that is full: a log driver that stalls must not stop the broker."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from tests.broker.raw import RawClient
from tests.cli.running import PENSTOCK, WAIT_S, consecutive_free_ports
from tests.waiting import eventually

pytestmark = pytest.mark.process

#: the longest that a request may wait
WAIT_MAX_S = 0.05
#: rounds of requests: other processes of a busy machine delay some rounds, and a log that blocks delays all
ROUNDS, REQUESTS = 6, 50


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, b"." * 1024)
    os.set_blocking(writing, True)
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


@contextmanager
def broker(output: int, folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    port = consecutive_free_ports(1)
    rights = f"authorizer.class.name={STANDARD_AUTHORIZER}"
    options = ["--port", str(port), "--data", str(folder), "--log-level", "debug", "--set", rights]
    process = subprocess.Popen([*PENSTOCK, "up", *options, *arguments], stdout=output, stderr=output)
    try:
        yield process, f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(WAIT_S)


def connected(address: str) -> RawClient:
    found: list[RawClient] = []

    def connects() -> bool:
        try:
            found.append(RawClient(address))
        except ConnectionRefusedError:
            return False
        return True

    eventually(connects)
    return found[0]


def denied_request(client: RawClient, nth: int) -> None:
    """A request whose 50 denied names make an audit event, which is a line of the log."""
    topics = [MetadataRequestTopic(name=f"t{nth}-{n}") for n in range(50)]
    client.call(METADATA, 9, MetadataRequest(topics=topics, allow_auto_topic_creation=False))


def longest_wait(client: RawClient, first: int) -> float:
    waits = []
    for nth in range(first, first + REQUESTS):
        began = time.monotonic()
        denied_request(client, nth)
        waits.append(time.monotonic() - began)
    return max(waits)


def test_requests_are_answered_while_nothing_reads_the_log(tmp_path: Path) -> None:
    """The broker stood still from the first line on that did not fit into the pipe, also while it started."""
    with full_pipe() as (reading, writing), broker(writing, tmp_path / "data") as (process, address):
        with connected(address) as client:
            denied_request(client, -1)
            longest = [longest_wait(client, nth * REQUESTS) for nth in range(ROUNDS)]
        assert min(longest) < WAIT_MAX_S, longest
        received = bytearray()

        def read() -> None:
            while data := os.read(reading, 1 << 16):
                received.extend(data)
                if b"event=stopped" in received:
                    return

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        reader.join(WAIT_S)
    lines = bytes(received).lstrip(b".").decode().splitlines()
    assert any("event=started" in line for line in lines), "lines of the start were kept"
    assert any(line.startswith("ready ") for line in lines)
    assert "event=stopped" in lines[-1], "the queue was written before the process ended"
    assert sum("event=access_denied" in line for line in lines) > 50


@pytest.mark.parametrize("cores", [False, True])
def test_a_broker_stops_while_nothing_reads_the_log(tmp_path: Path, cores: bool) -> None:
    with full_pipe() as (_, writing):
        arguments = ["--cores", "1"] if cores else []
        with broker(writing, tmp_path / "data", *arguments) as (process, address):
            with connected(address) as client:
                denied_request(client, 0)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0


def test_a_log_without_a_reader_does_not_stop_the_broker(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with broker(writing, tmp_path / "data") as (process, address):
        with connected(address) as client:
            denied_request(client, 0)
            denied_request(client, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    os.close(writing)
