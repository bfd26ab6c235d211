"""Compiles and matches the regular expressions of clients outside the event loop.

RE2 holds the interpreter lock while it compiles an expression and while it matches one name. A worker thread
runs short expressions, for which both take a few milliseconds at most, for a limited time. Long expressions,
and those that need more time or memory, run in a worker process of low priority. An expression that takes too
long in the process is refused.

Invariant: at most one thread and one process work for expressions, whatever clients send. Requests with other
expressions wait for their turn.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from functools import partial
from time import thread_time
from typing import Final

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.regexes import RegexTooLarge, matching_names
from penstock.ports import Workers

__all__ = ["Regexes"]

#: The longest expression that a thread compiles, and the bound of its memory: with both, RE2 takes up to
#: 10 ms. 32 KB of Unicode classes take a second whatever the memory bound, and nested repetitions of few
#: characters take 150 ms with the bound of processes.
_SHORT: Final = 128
_SMALL: Final = 1 << 17
#: the processor time of a job in a thread
_THREAD_S: Final = 0.02
#: the time of a job in a process, its start included
_PROCESS_S: Final = 10.0
#: Checked expressions that are remembered, and the sum of their characters.
_KNOWN_MAX: Final = 1000
_KNOWN_CHARACTERS: Final = 1 << 20


class Regexes:
    """The regular expressions of a broker's clients. Owned by the event loop's thread."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._thread = asyncio.Lock()
        self._process = asyncio.Lock()
        #: checked expressions, the last used ones last; the error of an invalid one
        self._known: dict[str, ApiError | None] = {}
        self._characters = 0

    def is_checked(self, pattern: str) -> bool:
        """Returns true if the outcome of `check` is known."""
        return pattern in self._known

    def error_of(self, pattern: str) -> ApiError | None:
        """The error of a checked expression; None if it is valid."""
        # The last used expressions stay longest.
        error = self._known[pattern] = self._known.pop(pattern)
        return error

    async def check(self, pattern: str) -> ApiError | None:
        """The error of an expression that is invalid, or too expensive to compile; None if it is valid."""
        if pattern not in self._known:
            try:
                await self.matching(pattern, [])
                error = None
            except ApiError as e:
                error = e
            self._remember(pattern, error)
        return self.error_of(pattern)

    async def matching(self, pattern: str, names: Sequence[str]) -> list[str]:
        """The names that match as a whole, in their order; INVALID_REGULAR_EXPRESSION as `check`."""
        found = None
        if len(pattern) <= _SHORT:
            async with self._thread:
                found = await self._workers.in_thread(_match_for_a_while, pattern, names)
        if found is None:
            async with self._process:
                found = await self._in_process(pattern, names)
        return found

    async def _in_process(self, pattern: str, names: Sequence[str]) -> list[str]:
        in_thread = self._workers.in_thread
        # A process gets and returns bytes: the event loop does not pickle many names.
        job = await in_thread(pickle.dumps, names)
        try:
            async with asyncio.timeout(_PROCESS_S):
                outcome = await self._workers.in_process(_match, pattern, job)
        except TimeoutError as e:
            raise ApiError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"the expression takes more than {_PROCESS_S:g} s to compile and match",
            ) from e
        if isinstance(outcome, str):
            raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, outcome)
        found: list[str] = await in_thread(pickle.loads, outcome)
        return found

    def _remember(self, pattern: str, error: ApiError | None) -> None:
        if pattern not in self._known:
            self._characters += len(pattern)
        self._known[pattern] = error
        while len(self._known) > _KNOWN_MAX or self._characters > _KNOWN_CHARACTERS:
            oldest = next(iter(self._known))
            if oldest == pattern:
                break
            del self._known[oldest]
            self._characters -= len(oldest)


def _match_for_a_while(pattern: str, names: Sequence[str]) -> list[str] | None:
    """The matching names; None if it takes too long or too much memory."""
    try:
        return matching_names(pattern, names, _SMALL, partial(_is_over, thread_time() + _THREAD_S))
    except RegexTooLarge:
        return None


def _match(pattern: str, names: bytes) -> bytes | str:
    """The matching names, or the reason why the expression is invalid."""
    try:
        return pickle.dumps(matching_names(pattern, pickle.loads(names)))
    except ApiError as e:
        return e.message


def _is_over(limit: float) -> bool:
    return thread_time() > limit
