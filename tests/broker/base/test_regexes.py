"""Regular expressions in workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.broker.base import regexes as module
from penstock.broker.base.regexes import Regexes
from penstock.model.errors import ErrorCode


class CountingWorkers:
    """Runs jobs at once, and counts them."""

    def __init__(self) -> None:
        self.threads = 0
        self.processes = 0

    async def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        self.threads += 1
        return function(*args)

    async def in_process(self, function: Callable[..., Any], *args: Any) -> Any:
        self.processes += 1
        return function(*args)

    def close(self) -> None:
        """No job runs on."""


def test_a_short_expression_needs_one_job_in_a_thread() -> None:
    workers = CountingWorkers()
    found = asyncio.run(Regexes(workers).matching("t(1|2)", ["t1", "t2", "t3", "xt1"]))
    assert found == ["t1", "t2"]
    assert (workers.threads, workers.processes) == (1, 0)


def test_an_expression_that_compiles_to_much_goes_to_a_process() -> None:
    workers = CountingWorkers()
    found = asyncio.run(Regexes(workers).matching("(.{0,900}(.{0,900}))", ["t1", "x\0y"]))
    assert found == ["t1", "x\0y"]
    assert workers.processes == 1


def test_a_long_expression_goes_to_a_process_at_once() -> None:
    workers = CountingWorkers()
    found = asyncio.run(Regexes(workers).matching("|".join(f"t{n}" for n in range(500)), ["t7", "t500"]))
    assert found == ["t7"]
    assert workers.processes == 1


def test_a_checked_expression_is_known() -> None:
    workers = CountingWorkers()
    regexes = Regexes(workers)
    assert asyncio.run(regexes.check("t.*")) is None
    error = asyncio.run(regexes.check("("))
    assert error is not None and error.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert regexes.is_checked("(") and regexes.error_of("(") is error
    assert asyncio.run(regexes.check("t.*")) is None
    assert workers.threads == 2


def test_the_memory_of_checked_expressions_is_bounded() -> None:
    regexes = Regexes(CountingWorkers())

    async def check_all() -> None:
        for number in range(module._KNOWN_MAX + 10):
            await regexes.check(f"t{number}")
            await regexes.check("t0")

    asyncio.run(check_all())
    assert not regexes.is_checked("t1")
    # The expression that is in use stays.
    assert regexes.is_checked("t0")
    assert len(regexes._known) == module._KNOWN_MAX


def test_the_characters_of_checked_expressions_are_bounded() -> None:
    regexes = Regexes(CountingWorkers())

    async def check_all() -> None:
        for number in range(40):
            await regexes.check(f"{number}" + "t" * 30_000)

    asyncio.run(check_all())
    assert sum(map(len, regexes._known)) <= module._KNOWN_CHARACTERS
