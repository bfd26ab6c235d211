"""Answers of a coordinator: how long they wait for what they are based on, and the pace at which they go out.

When a group of a thousand ends a round, a thousand members wait for their answers, and each comes with its
next request once it has its own. So these, unlike answers that are decided in the turn of their question, go
out a few per millisecond: nobody else waits behind a thousand of them, nor behind what they cause. To the
members that is a fraction of a second, after a round that took seconds.

Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from penstock.groups.ledger import Answer, response_of
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.deferred import Deferred
from penstock.wire.schema import Struct

__all__ = ["Answers", "Question", "Uncommitted"]

#: answers of either kind that go out in one turn of the event loop
PER_TURN: Final = 4
#: between such turns, as far as answers to the end of a round are concerned
PACE_S: Final = 0.001


class Question:
    """Someone who waits for a shard's answer."""

    __slots__ = ("answer", "is_parked", "refusal")

    def __init__(self, refusal: Callable[[ApiError], Struct]) -> None:
        self.answer: Deferred[Struct] = Deferred()
        #: makes the response of an error
        self.refusal = refusal
        #: the shard kept it for later: it is answered when a round of its group ends
        self.is_parked = False

    def refuse(self, error: ApiError) -> None:
        self.answer.resolve(self.refusal(error))


class Uncommitted:
    """Answers that wait until what they are based on is committed, but not for ever: as in Kafka, whoever
    waits for replicas that do not come is told that there is no coordinator, and asks again.
    """

    __slots__ = ("_patience_s", "_timer", "_waiting")

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        #: (end offset, time on the loop's clock, answers that may go out when the first is committed, and
        #: must not wait beyond the second), by both
        self._waiting: deque[tuple[int, float, list[tuple[Question, Answer]]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, end_offset: int, replies: list[tuple[Question, Answer]]) -> None:
        loop = asyncio.get_running_loop()
        self._waiting.append((end_offset, loop.time() + self._patience_s, replies))
        if self._timer is None:
            self._timer = loop.call_later(self._patience_s, self._time_is_up)

    def committed(self, high_watermark: int) -> list[tuple[Question, Answer]]:
        """Those that have waited long enough, now that everything below `high_watermark` is committed."""
        decided: list[tuple[Question, Answer]] = []
        while self._waiting and self._waiting[0][0] <= high_watermark:
            decided += self._waiting.popleft()[2]
        return decided

    def take_all(self) -> list[Question]:
        """Whoever waits; from now on nobody does."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        return [question for _, _, replies in waiting for question, _ in replies]

    def _time_is_up(self) -> None:
        """For the first, or for whoever went before it: then the timer goes on for the first."""
        loop, waiting = asyncio.get_running_loop(), self._waiting
        now, late = loop.time(), []
        while waiting and waiting[0][1] <= now:
            late += waiting.popleft()[2]
        self._timer = loop.call_at(waiting[0][1], self._time_is_up) if waiting else None
        error = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few replicas have taken it in time")
        for question, _ in late:
            question.refuse(error)


class Answers:
    """Each kind in the order in which it was decided."""

    __slots__ = ("_answering", "_direct", "_of_rounds", "_pace")

    def __init__(self) -> None:
        self._direct: deque[tuple[Question, Answer]] = deque()
        self._of_rounds: deque[tuple[Question, Answer]] = deque()
        #: whether a turn for more direct answers is on its way
        self._answering = False
        #: the turn for more answers of rounds
        self._pace: asyncio.TimerHandle | None = None

    def give(self, decided: Iterable[tuple[Question, Answer]]) -> None:
        """These may be told: the first at once."""
        for each in decided:
            (self._of_rounds if each[0].is_parked else self._direct).append(each)
        if self._direct and not self._answering:
            self._answer_direct()
        if self._of_rounds and self._pace is None:
            self._answer_rounds()

    def give_all(self) -> None:
        """Tell everybody now: there will be no other turn."""
        if self._pace is not None:
            self._pace.cancel()
            self._pace = None
        _answer(self._direct, len(self._direct))
        _answer(self._of_rounds, len(self._of_rounds))

    def _answer_direct(self) -> None:
        self._answering = True  # what is resolved here may lead to more
        _answer(self._direct, PER_TURN)
        self._answering = bool(self._direct)
        if self._direct:
            asyncio.get_running_loop().call_soon(self._answer_direct)

    def _answer_rounds(self) -> None:
        self._pace = asyncio.get_running_loop().call_later(PACE_S, self._next_of_rounds)
        _answer(self._of_rounds, PER_TURN)

    def _next_of_rounds(self) -> None:
        self._pace = None
        if self._of_rounds:
            self._answer_rounds()


def _answer(answers: deque[tuple[Question, Answer]], most: int) -> None:
    for _ in range(min(len(answers), most)):
        question, answer = answers.popleft()
        question.answer.resolve(response_of(answer))
