"""The start of a frame: how much is needed, where reading stops, when the buffer has to grow."""

from __future__ import annotations

from penstock.net.partial_frame import PartialFrame

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
