"""A state that is shown again and again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.cli.failure import Failure
from penstock.cli.watching import repeat


def ctrl_c_after(rounds: int, slept: list[float]) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == rounds:
            raise KeyboardInterrupt

    return sleep


def test_watching_looks_at_even_intervals_until_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    slept: list[float] = []
    states = iter("abc")
    repeat(lambda: next(states), print, 0.5, as_json=True, sleep=ctrl_c_after(3, slept))
    assert capsys.readouterr().out == "a\nb\nc\n"
    assert slept == [0.5] * 3


def test_a_cluster_that_cannot_be_reached_at_first_is_a_failure() -> None:
    def look() -> str:
        raise Failure("no broker answers")

    with pytest.raises(Failure, match="no broker answers"):
        repeat(look, print, 0.5)


def test_a_later_failure_is_shown_and_the_next_look_may_succeed(capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["a", None, "b"])

    def look() -> str:
        if (answer := next(answers)) is None:
            raise Failure("no broker answers")
        return answer

    repeat(look, print, 0.5, sleep=ctrl_c_after(3, []))
    shown = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("20")]
    assert shown == ["a", "penstock: no broker answers", "b"]
