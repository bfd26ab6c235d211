"""A queue of lines and its thread: a reader that stalls loses the least severe lines, and holds nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from time import monotonic

import pytest

from penstock.broker.base.descriptor_writes import write_all
from penstock.broker.base.line_writer import LineWriter
from tests.waiting import eventually

SIZE = 800
#: of an entry beside its bytes
ENTRY = SIZE + 200


def gap(counts: Mapping[str, int]) -> bytes:
    return f"dropped {dict(counts)}\n".encode()


class Output:
    """Takes lines, unless it is held."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.error: OSError | None = None
        self.may_write = threading.Event()
        self.may_write.set()

    def write(self, data: bytes) -> None:
        self.may_write.wait()
        if self.error is not None:
            raise self.error
        self.lines += data.decode().splitlines()


@pytest.fixture
def output() -> Iterator[Output]:
    made = Output()
    yield made
    made.may_write.set()


def put(writer: LineWriter, level: str, text: str) -> bool:
    return writer.put(level, SIZE, lambda: f"{text}\n".encode())


def stalled(output: Output, limit: int) -> LineWriter:
    """A writer whose thread waits for its reader with one line."""
    output.may_write.clear()
    writer = LineWriter("test", output.write, gap, limit)
    assert put(writer, "info", "first")
    eventually(lambda: not len(writer))
    return writer


def test_lines_are_written_in_order_and_flushed(output: Output) -> None:
    writer = LineWriter("test", output.write, gap)
    for n in range(1000):
        assert put(writer, "info", str(n))
    assert writer.flush(10.0)
    assert output.lines == [str(n) for n in range(1000)]
    assert not any(writer.dropped.values())


def test_the_least_severe_lines_are_dropped_first(output: Output) -> None:
    writer = stalled(output, 80 * ENTRY)
    taken: dict[str, int] = {}
    for level in ("debug", "info", "warning", "error"):
        taken[level] = 0
        while put(writer, level, level):
            taken[level] += 1
    # One line is in the hands of the thread, and the line of each gap takes space, too.
    assert taken == {"debug": 39, "info": 19, "warning": 10, "error": 10}
    assert writer.dropped == {"debug": 1, "info": 1, "warning": 1, "error": 1}
    output.may_write.set()
    assert writer.flush(10.0)
    levels = [line for line in output.lines if not line.startswith("dropped")]
    assert levels == ["first"] + ["debug"] * 39 + ["info"] * 19 + ["warning"] * 10 + ["error"] * 10


def test_the_number_of_dropped_lines_is_logged_in_their_place(output: Output) -> None:
    writer = stalled(output, 8 * ENTRY)
    written = sum(put(writer, "info", f"info {n}") for n in range(20))
    assert put(writer, "error", "an error")
    output.may_write.set()
    assert writer.flush(10.0)
    assert put(writer, "info", "later") and writer.flush(10.0)
    assert output.lines[written + 1 :] == [f"dropped {{'info': {20 - written}}}", "an error", "later"]


def test_a_flush_reports_lines_that_were_dropped_last(output: Output) -> None:
    writer = stalled(output, 8 * ENTRY)
    while put(writer, "info", "x"):
        pass
    output.may_write.set()
    assert writer.flush(10.0)
    assert output.lines[-1] == "dropped {'info': 1}"


def test_a_flush_waits_no_longer_than_its_timeout(output: Output) -> None:
    writer = stalled(output, 8 * ENTRY)
    began = monotonic()
    assert not writer.flush(0.05)
    assert monotonic() - began < 5.0


def test_lines_that_cannot_be_written_are_counted(output: Output) -> None:
    """A closed pipe raised BrokenPipeError in the code that logs."""
    writer = LineWriter("test", output.write, gap)
    output.error = OSError(28, "No space left on device")
    assert put(writer, "warning", "lost")
    eventually(lambda: writer.dropped["warning"] == 1)
    output.error = None
    assert put(writer, "info", "later") and writer.flush(10.0)
    assert output.lines == ["dropped {'warning': 1}", "later"]


def test_a_line_that_cannot_be_rendered_does_not_end_the_log(output: Output) -> None:
    writer = LineWriter("test", output.write, gap)

    def render() -> bytes:
        raise ValueError("boom")

    assert writer.put("info", 1, render) and put(writer, "info", "next")
    assert writer.flush(10.0)
    assert "line_not_rendered" in output.lines[0] and output.lines[1] == "next"


def test_a_line_that_is_put_while_another_is_put_does_not_wait(output: Output) -> None:
    """The collection of garbage may log at any place."""
    writer = LineWriter("test", output.write, gap)

    class Level(str):
        __slots__ = ()

        def __hash__(self) -> int:
            put(writer, "info", "inner")
            return super().__hash__()

    outer: Callable[[], bool] = lambda: put(writer, Level("info"), "outer")  # noqa: E731
    thread = threading.Thread(target=outer, daemon=True)
    thread.start()
    thread.join(10.0)
    assert not thread.is_alive(), "the thread waits for itself"
    assert writer.flush(10.0) and "outer" in output.lines


def test_a_full_pipe_holds_only_the_thread() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    writer = LineWriter("test", lambda data: write_all(writing, data), gap)
    # Nothing reads from the pipe yet: a call that waits for it does not return.
    for n in range(2000):
        put(writer, "info", str(n))
    assert not writer.flush(0.01)
    received = bytearray()

    def read() -> None:
        while not received.endswith(b"\n1999\n"):
            received.extend(os.read(reading, 1 << 16))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert writer.flush(30.0)
    reader.join(30.0)
    assert bytes(received).lstrip(b"x").split() == [str(n).encode() for n in range(2000)]
    os.close(reading)
    os.close(writing)
