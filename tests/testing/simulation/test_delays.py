"""The checker of delay topics on histories that break one rule each."""

from __future__ import annotations

import pytest

from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.delays import DelayChecker


def checker(*, is_punctual: bool = True) -> DelayChecker:
    """One message is acknowledged, and the outcome of another one is unknown."""
    made = DelayChecker(is_punctual=is_punctual)
    made.due_ms = {b"a": 1000, b"b": 2000}
    made.acknowledged = {b"a"}
    return made


def test_a_message_of_unknown_outcome_may_be_there() -> None:
    checker().finish([b"a"])
    checker().finish([b"b", b"a"])


def test_an_acknowledged_message_is_not_lost() -> None:
    with pytest.raises(Violation, match="delayed message lost"):
        checker().finish([b"b"])


@pytest.mark.parametrize("value", [b"a", b"b"])
def test_no_message_is_written_twice(value: bytes) -> None:
    with pytest.raises(Violation, match="delayed message written twice"):
        checker().finish([b"a", b"b", value])


def test_no_message_is_early_unless_clocks_jump() -> None:
    checker().seen(b"a", 1000)
    checker(is_punctual=False).seen(b"a", 999)
    with pytest.raises(Violation, match="delayed message early"):
        checker().seen(b"a", 999)
