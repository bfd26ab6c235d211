"""Attacks on the memory of a broker, on a small scale; `make hostile` runs all of them."""

from __future__ import annotations

import pytest

from penstock.records.codecs import Codec
from penstock.wire.apis.produce import PRODUCE
from tests.hostile import memory
from tests.hostile.clients import Client, Kind, frame_of, prepare
from tests.hostile.target import target

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_batches_that_decompress_to_much_leave_nothing_behind() -> None:
    """The error of such a batch kept its buffer of 100 MB until garbage was collected."""
    batch = memory.bomb(Codec.LZ4)
    with target() as running:
        prepare(running)
        with Client(running, Kind.OPEN) as client:
            frame = frame_of(PRODUCE, 9, memory.produced(batch))
            client.exchange(frame)
            before = running.resident_bytes()
            for _ in range(6):
                client.exchange(frame)
            assert running.resident_bytes() - before < 200 << 20


def test_unread_responses_and_share_sessions_are_bounded() -> None:
    with target() as running:
        prepare(running)
        for name in ("responses that are not read", "share sessions"):
            assert memory.attack(running, name) < memory.GROWTH_MAX, name
