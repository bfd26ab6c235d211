"""The raw frames that the request row sends, read back by our own decoder and kafka-python's."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from kafka.record.memory_records import MemoryRecords

from bench.requests import PRODUCE_V7_ERROR_AT, RATE, RECORD, produce_frame, record_batch, waits
from penstock.records.batch import crc_matches, read_header


def test_the_batch_is_one_valid_record() -> None:
    batch = record_batch(RECORD)
    header = read_header(batch)
    assert header.size == len(batch)
    assert crc_matches(batch, header)
    (read,) = MemoryRecords(batch)
    assert [(record.key, record.value) for record in read] == [(None, RECORD)]


def test_the_frame_carries_its_own_length() -> None:
    frame = produce_frame("topic", 3, b"batch")
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    assert frame.endswith(struct.pack(">ii", 3, 5) + b"batch")


@contextmanager
def broker(errors: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Answers a Produce of topic `t` with each of the error codes in turn, and hangs up then."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as requests:
            for error in errors:
                requests.read(int.from_bytes(requests.read(4), "big"))
                answer = struct.pack(f">i{PRODUCE_V7_ERROR_AT + 1}xh", PRODUCE_V7_ERROR_AT + 3, error)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield server.getsockname()
    thread.join()
    server.close()


def test_at_a_rate_every_request_is_answered_once_the_broker_leads() -> None:
    with broker([6, 0] + [0] * (RATE // 20)) as address:
        felt = waits(address, "t", 1 / 20)
    assert len(felt) == RATE // 20
    assert all(milliseconds > 0 for milliseconds in felt)


def test_a_broker_that_hangs_up_in_between_is_noticed() -> None:
    with broker([0] * 10) as address, pytest.raises(ConnectionError):
        waits(address, "t", 1 / 20)
