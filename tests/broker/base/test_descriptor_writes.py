"""Writes to descriptors: complete, also to a pipe that does not block."""

from __future__ import annotations

import os
import threading

from penstock.broker.base.descriptor_writes import accepts_at_once, write_all


def test_all_bytes_are_written_to_a_pipe_that_does_not_block() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = os.urandom(1 << 20)
    writer = threading.Thread(target=write_all, args=(writing, data), daemon=True)
    writer.start()
    received = bytearray()
    while len(received) < len(data):
        received += os.read(reading, 1 << 16)
    writer.join(30.0)
    assert received == data
    os.close(reading)
    os.close(writing)


def test_a_full_pipe_does_not_accept_a_line_at_once() -> None:
    reading, writing = os.pipe()
    assert accepts_at_once(writing)
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        assert not accepts_at_once(writing)
    os.close(reading)
    os.close(writing)
