"""Runs the table on one broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Final

from differential.shares.cases import Case, cases
from differential.shares.scene import Place, Scene

__all__ = ["outcome", "run"]

#: Cases wait for Kafka more than they compute. A case has two sessions at most, unless it runs alone.
_THREADS: Final = 5
_numbers = count()


def outcome(case: Case, place: Place) -> str:
    with _scene(place) as scene:
        try:
            return case.run(scene)
        except (AssertionError, AttributeError) as e:
            # A step before the last one has another answer, or none.
            return f"not prepared: {e}"


def run(place: Place, chosen: Sequence[Case] | None = None) -> dict[str, str]:
    """The outcome of every case by its name."""
    wanted = cases() if chosen is None else chosen
    found: dict[str, str] = {case.name: outcome(case, place) for case in wanted if case.is_alone}
    together = [case for case in wanted if not case.is_alone]
    with ThreadPoolExecutor(_THREADS) as threads:
        outcomes = threads.map(lambda case: outcome(case, place), together)
        found |= {case.name: each for case, each in zip(together, outcomes, strict=True)}
    return found


@contextmanager
def _scene(place: Place) -> Iterator[Scene]:
    scene = Scene(place, str(next(_numbers)))
    try:
        yield scene
    finally:
        scene.close()
