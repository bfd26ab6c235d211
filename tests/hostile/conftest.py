"""Brokers under a meter: one without an authorizer and one with, each in a process, for tests of a module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from lab.stall_meter import StallMeter
from tests.hostile.clients import prepare
from tests.hostile.meter import Meter
from tests.hostile.target import SECURED, Target, target


class Metered(NamedTuple):
    """A running broker, its meter, and the ids of its topics."""

    target: Target
    meter: Meter
    topic_ids: tuple[bytes, ...]


@contextmanager
def metered(settings: Mapping[str, str] | None = None) -> Iterator[Metered]:
    with target(settings) as running:
        topic_ids = prepare(running)
        with StallMeter(running.ports["PLAINTEXT"], running.loop_thread) as honest:
            meter = Meter(running, honest)
            try:
                yield Metered(running, meter, topic_ids)
            finally:
                meter.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[Metered]:
    with metered() as found:
        yield found


@pytest.fixture(scope="module")
def secured() -> Iterator[Metered]:
    with metered(SECURED) as found:
        yield found
