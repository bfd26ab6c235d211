"""Requests on their way to a peer, and where their answers go."""

from __future__ import annotations

from typing import Any, Protocol

from penstock.wire.api import Api

__all__ = ["Call", "Landing"]


class Landing(Protocol):
    """The receiver of a response: a future, or an object that needs no waiting task."""

    def done(self) -> bool:
        """Whether the response is no longer needed."""
        ...

    def set_result(self, response: Any, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


class Call:
    """A request, where its answer goes, and until when."""

    __slots__ = ("_is_over", "answer", "answered", "api", "deadline", "request", "timeout_s")

    def __init__(
        self, api: Api[Any, Any], request: Any, timeout_s: float, now: float, answered: bool, answer: Landing
    ) -> None:
        self.api = api
        self.request = request
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s
        self.answered = answered
        self.answer = answer
        self._is_over = False

    def renew(self, now: float) -> None:
        """Prepare to send the same request again after its response."""
        self.deadline = now + self.timeout_s
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether there is a response, or none is needed any more."""
        return self._is_over or self.answer.done()

    def succeed(self, response: Any) -> None:
        if not (self._is_over or self.answer.done()):
            self._is_over = True
            self.answer.set_result(response)

    def fail(self, error: Exception) -> None:
        if not self.is_over:
            self._is_over = True
            self.answer.set_exception(error)
