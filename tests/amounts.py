"""How much of what is drawn at random a run of the tests covers.

`make test` covers all of it. The fast set (`--fast`) covers a quarter, and runs each test all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import settings

__all__ = ["amount", "is_fast", "known_first"]

#: the examples per test in the two profiles of tests/conftest.py
_ALL: Final = 100
_FAST: Final = 25


def is_fast() -> bool:
    """Returns true for the fast set, whose profile is loaded before any test is imported."""
    return settings().max_examples <= _FAST


def amount(whole: int) -> int:
    """The number of examples or seeds to run, of `whole`."""
    return max(1, whole * _FAST // _ALL) if is_fast() else whole


def known_first(seeds: Sequence[int], known: int) -> list[int]:
    """The seed that found a fault the last time, then all others: a change may make another one find it."""
    return [known, *(seed for seed in seeds if seed != known)]
