"""The start of a frame: how much is needed, where reading stops, when the buffer has to grow."""

from __future__ import annotations

from penstock.net.partial_frame import PartialFrame, frame_size


def frame(size: int) -> memoryview:
    return memoryview(size.to_bytes(4, "big") + bytes(size))


def arrived(partial: PartialFrame, data: memoryview) -> None:
    """Read `data` as a transport does: into `space`, whose size limits the read."""
    assert len(data) <= len(partial.space)
    partial.space[: len(data)] = data
    partial.filled += len(data)


def test_the_size_of_a_frame_is_unknown_before_its_length_field_is_whole() -> None:
    assert [frame_size(frame(10)[:have]) for have in (0, 3, 4, 9)] == [4, 4, 14, 14]


def test_reading_stops_at_the_end_of_the_frame() -> None:
    partial = PartialFrame(bytearray(64), frame(10)[:6], 1.0)
    assert (partial.need, len(partial.space)) == (14, 8)
    arrived(partial, frame(10)[6:])
    assert partial.filled == partial.need
    assert partial.data == frame(10)


def test_with_an_incomplete_length_field_reading_goes_on_to_the_end_of_the_buffer() -> None:
    partial = PartialFrame(bytearray(64), frame(10)[:2], 1.0)
    assert (partial.need, len(partial.space)) == (4, 62)
    arrived(partial, frame(10)[2:7])
    partial.measure()
    assert (partial.need, len(partial.space)) == (14, 7)


def test_a_buffer_that_is_smaller_than_the_frame_has_to_grow_once_it_is_full() -> None:
    partial = PartialFrame(bytearray(8), frame(10)[:6], 1.0)
    assert (partial.need, partial.is_full) == (8, False)
    arrived(partial, frame(10)[6:8])
    assert (partial.filled, partial.is_full) == (partial.need, True)
    grown = PartialFrame(bytearray(16), partial.data, partial.began)
    assert (grown.need, grown.is_full, grown.began) == (14, False, 1.0)


def test_a_slow_sender_has_a_grace_and_then_a_rate() -> None:
    partial = PartialFrame(bytearray(64), frame(10)[:10], 1.0)
    assert not partial.is_slow(8.0, timeout_s=5.0, bytes_per_s=5)
    assert partial.is_slow(8.1, timeout_s=5.0, bytes_per_s=5)


def test_whole_frames_that_arrived_before_a_pause_do_not_make_the_buffer_grow() -> None:
    both = bytes(frame(2)) + bytes(frame(2))
    partial = PartialFrame(bytearray(len(both)), memoryview(both), 1.0)
    assert (partial.need, partial.is_full, len(partial.space)) == (6, False, 0)
