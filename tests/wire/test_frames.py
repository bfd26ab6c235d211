"""Frames out of a stream: views of the bytes as they arrived, and no more memory than arrived."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ProtocolError
from penstock.wire.frames import EAGER_SIZE, FrameReader


def _stream(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 50))
def test_frames_come_out_as_they_went_in(frames: list[bytes], step: int) -> None:
    stream = _stream(*frames)
    reader = FrameReader()
    cut = [frame for i in range(0, len(stream), step) for frame in reader.feed(stream[i : i + step])]
    assert cut == frames


@given(st.lists(st.integers(0, 200_000), max_size=6), st.integers(1_000, 150_000))
def test_frames_of_any_size_keep_their_bytes(sizes: list[int], step: int) -> None:
    """Also after later bytes were read: a buffer of which a frame was handed out is not written to again."""
    frames = [bytes((i,)) * size for i, size in enumerate(sizes)]
    stream = _stream(*frames)
    reader = FrameReader()
    cut: list[memoryview] = []
    position = 0
    while position < len(stream):
        room = reader.get_buffer()
        size = min(len(room), step, len(stream) - position)
        room[:size] = stream[position : position + size]
        cut += reader.received(size)
        position += size
    assert cut == frames


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
def test_sizes_out_of_bounds(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"frame of {size} bytes"):
        FrameReader(max_bytes=100).feed(struct.pack(">i", size))


def test_a_large_frame_is_read_straight_to_where_it_stays() -> None:
    """Once its size is known the rest of it has one place to go: nothing is moved, nothing is joined."""
    size = 3 << 20
    reader = FrameReader()
    reader.feed(struct.pack(">i", size) + b"x" * (80 << 10))
    room = reader.get_buffer()
    assert len(room) == size - (80 << 10)
    room[:] = b"y" * len(room)
    (frame,) = reader.received(len(room))
    assert bytes(frame[-3:]) == b"yyy"
    room[-1] = ord("z")
    assert frame[-1] == ord("z"), "the frame is the very memory that was read into"


def test_two_large_buffers_alternate_once_no_view_is_left() -> None:
    """While one frame is looked at the next one arrives in the other buffer."""
    reader = FrameReader()
    buffers = []
    for number in range(6):
        # the frame before this one is let go only when this one is there
        (frame,) = reader.feed(_stream(bytes([number]) * (1 << 20 if number % 3 else 1 << 19)))
        assert bytes(frame[-2:]) == bytes([number]) * 2
        buffers.append(frame.obj)
    # the first one was too small for the others
    assert {id(buffer) for buffer in buffers[3:]} == {id(buffer) for buffer in buffers[1:3]}


def test_a_buffer_with_a_view_is_left_alone() -> None:
    reader = FrameReader()
    stream = _stream(bytes(1 << 20))
    frames = [frame for _ in range(3) for frame in reader.feed(stream)]
    assert len({id(frame.obj) for frame in frames}) == 3


def test_small_frames_that_arrive_together_share_a_buffer() -> None:
    reader = FrameReader()
    first, second = reader.feed(_stream(b"one", b"two"))
    assert first.obj is second.obj


def test_a_claim_alone_costs_little() -> None:
    tracemalloc.start()
    try:
        reader = FrameReader()
        reader.feed(struct.pack(">i", 99 << 20) + b"x" * (70 << 10))
        assert tracemalloc.get_traced_memory()[1] < EAGER_SIZE + (1 << 20)
    finally:
        tracemalloc.stop()


def test_a_frame_beyond_the_eager_size_still_arrives() -> None:
    size = 2 * EAGER_SIZE + 5
    reader = FrameReader()
    (frame,) = reader.feed(struct.pack(">i", size) + bytes(size - 1) + b"!")
    assert (len(frame), frame[-1]) == (size, ord("!"))
