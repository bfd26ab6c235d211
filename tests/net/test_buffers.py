"""The memory of frames in flight, and the connections that wait when it is too much."""

from __future__ import annotations

from penstock.net.buffers import BufferPool, FrameBuffer, is_kept


def test_charged_bytes_leave_less_for_frames_until_their_release() -> None:
    pool = BufferPool(limit=64 << 10)
    mine, yours = (pool.take(4 << 10, 4 << 10, None) for _ in range(2))
    assert mine is not None
    assert yours is not None
    pool.charge(60 << 10)
    assert pool.held == 68 << 10

    assert pool.take(8 << 10, 4 << 10, mine) is not None  # one may always go on
    assert pool.take(8 << 10, 4 << 10, yours) is None
    retried: list[FrameBuffer | None] = []
    pool.wait(lambda: retried.append(pool.take(8 << 10, 4 << 10, yours)))
    assert not retried
    pool.release(60 << 10)

    (buffer,) = retried
    assert buffer is not None
    assert pool.held == 24 << 10


def test_a_frame_that_begins_past_the_limit_gets_a_buffer_with_room() -> None:
    """A buffer that is full from the start cannot be read into: the event loop closes the connection."""
    pool = BufferPool(limit=64 << 10)
    pool.charge(64 << 10)
    buffer = pool.take(1 << 20, 4 << 10, None)
    assert buffer is not None
    assert len(buffer) > 4 << 10


def test_an_address_past_its_limit_leaves_others_alone() -> None:
    pool = BufferPool(limit=1 << 20, address_limit=64 << 10)
    mine, yours = (pool.take(4 << 10, 4 << 10, None, address) for address in ("mine", "yours"))
    assert mine is not None
    assert yours is not None
    grown = pool.take(60 << 10, 32 << 10, mine, "mine")  # one of the address may always go on
    assert grown is not None
    pool.give_back(mine, "mine")
    other = pool.take(4 << 10, 2 << 10, None, "mine")
    assert other is not None
    assert pool.take(8 << 10, 4 << 10, other, "mine") is None
    assert pool.take(60 << 10, 32 << 10, yours, "yours") is not None
    pool.give_back(grown, "mine")
    assert pool.take(8 << 10, 4 << 10, other, "mine") is not None


def test_no_other_frame_gets_the_buffer_of_a_large_one() -> None:
    """A handler may keep the bytes of a large frame without a copy."""
    pool = BufferPool(limit=1 << 30)
    for size in (1 << 20, 3 << 20, 5 << 20, 90 << 20):
        first = pool.take(size, size, None)
        assert first is not None
        pool.give_back(first)
        kept = is_kept(memoryview(first)[4:size])
        assert kept == (size > 4 << 20)
        if kept:
            assert pool.take(size, size, None) is not first
