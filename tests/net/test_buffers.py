"""What is held for frames in flight, and who waits when it is too much."""

from __future__ import annotations

from penstock.net.buffers import BufferPool


def test_what_is_charged_leaves_less_for_frames_until_it_is_released() -> None:
    pool = BufferPool(limit=64 << 10)
    mine, yours = (pool.take(4 << 10, 4 << 10, None) for _ in range(2))
    assert mine is not None
    assert yours is not None
    pool.charge(60 << 10)
    assert pool.held == 68 << 10

    assert pool.take(8 << 10, 4 << 10, mine) is not None  # one may always go on
    assert pool.take(8 << 10, 4 << 10, yours) is None
    retried: list[bytearray | None] = []
    pool.wait(lambda: retried.append(pool.take(8 << 10, 4 << 10, yours)))
    assert not retried
    pool.release(60 << 10)

    (buffer,) = retried
    assert buffer is not None
    assert pool.held == 24 << 10
