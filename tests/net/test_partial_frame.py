"""The start of a frame: how much is needed, where reading stops, when the buffer has to grow."""

from __future__ import annotations

from penstock.net.buffers import BufferPool
from penstock.net.partial_frame import PartialFrame, keep_rest

FRAME = memoryview((10).to_bytes(4, "big") + bytes(10))
SIZE = len(FRAME)


def test_reading_stops_at_the_end_of_the_frame() -> None:
    partial = PartialFrame(bytearray(64), FRAME[:6], SIZE, 1.0)
    assert (partial.filled, partial.need, partial.stop) == (6, SIZE, SIZE)
    assert partial.view[:6] == FRAME[:6]


def test_with_an_incomplete_length_field_reading_goes_on_to_the_end_of_the_buffer() -> None:
    partial = PartialFrame(bytearray(64), FRAME[:2], 4, 1.0)
    assert (partial.need, partial.stop) == (4, 64)
    partial.filled = 7
    partial.measure(SIZE)
    assert (partial.need, partial.stop) == (SIZE, SIZE)


def test_a_buffer_that_is_smaller_than_the_frame_has_to_grow_once_it_is_full() -> None:
    partial = PartialFrame(bytearray(8), FRAME[:6], SIZE, 1.0)
    assert (partial.need, partial.stop) == (8, 8)
    grown = PartialFrame(bytearray(16), FRAME[:8], SIZE, partial.began)
    assert (grown.need, grown.stop, grown.began) == (SIZE, SIZE, 1.0)


def test_a_slow_sender_has_a_grace_and_then_a_rate() -> None:
    partial = PartialFrame(bytearray(64), FRAME[:10], SIZE, 1.0)
    assert not partial.is_slow(8.0, timeout_s=5.0, bytes_per_s=5)
    assert partial.is_slow(8.1, timeout_s=5.0, bytes_per_s=5)


def test_behind_whole_frames_reading_goes_on_to_the_end_of_the_buffer() -> None:
    partial = PartialFrame(bytearray(64), FRAME, SIZE, 1.0)
    assert (partial.need, partial.stop) == (SIZE, 64)


def test_the_rest_of_a_read_is_copied_into_a_buffer_of_the_pool() -> None:
    pool = BufferPool(1 << 20)
    kept = keep_rest(pool, None, FRAME[:6], 2.0, "")
    assert kept is not None
    assert (kept.filled, kept.need, kept.began) == (6, SIZE, 2.0)
    assert pool.held == len(kept.buffer)


def test_a_buffer_with_room_is_kept_and_a_full_one_replaced() -> None:
    pool = BufferPool(1 << 20)
    kept = keep_rest(pool, None, FRAME[:6], 2.0, "")
    assert kept is not None
    assert keep_rest(pool, kept, kept.view[:6], 3.0, "") is kept
    large = memoryview((1 << 19).to_bytes(4, "big") + bytes(len(kept.buffer) - 4))
    kept.view[:] = large
    grown = keep_rest(pool, kept, kept.view, 3.0, "")
    assert grown is not None
    assert (len(grown.buffer) > len(kept.buffer), grown.began) == (True, 2.0)


def test_without_a_free_buffer_nothing_is_kept() -> None:
    pool = BufferPool(4 << 10)
    other = pool.take(64, 8, None)
    assert other is not None
    first = keep_rest(pool, None, memoryview((1 << 19).to_bytes(4, "big") + bytes(4092)), 1.0, "")
    assert first is not None
    grown = pool.take(1 << 19, len(other), other)
    assert grown is not None, "one buffer may grow past the limit"
    assert keep_rest(pool, first, first.view[: len(first.buffer)], 2.0, "") is None
