"""The end of a consumer."""

from __future__ import annotations

from threading import Event
from typing import Any, cast

import pytest

from penstock.cli.commands.consume import _End


class Member:
    """A consumer whose group answers once it may."""

    def __init__(self) -> None:
        self.may_leave = Event()
        self.has_left = Event()

    def close(self) -> None:
        self.may_leave.wait()
        self.has_left.set()


@pytest.mark.parametrize("answers", [True, False])
def test_a_group_that_does_not_answer_does_not_hold_up_the_end(answers: bool) -> None:
    member = Member()
    if answers:
        member.may_leave.set()
    end = _End(cast(Any, member), 60.0 if answers else 0.01)
    end.close()
    assert end.has_left is answers
    member.may_leave.set()
    assert member.has_left.wait(60)
