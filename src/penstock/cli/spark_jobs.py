"""Runs a streaming query of Spark until it is stopped: its session, its retries, and a line per failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import typer

from penstock.cli.spark_log import SparkLog

if TYPE_CHECKING:
    from penstock.jobs.session import SessionStart
    from penstock.jobs.supervision import Retries

__all__ = ["make_session", "say", "supervise", "with_ending"]

_BEGAN_S: Final = time.monotonic()


def say(step: str) -> None:
    """Print a step of the start, with the time since the command began."""
    typer.echo(f"{time.monotonic() - _BEGAN_S:.1f} s: {step}", err=True)


def make_session(start: SessionStart, preload: Callable[[], None], spark_log: SparkLog) -> Any:
    """The session of Spark, whose JVM prints into the log; Failure if it does not start."""
    from penstock.jobs.query import LOST_JVM, SparkError

    try:
        with spark_log.taking_over():
            return start.session(preload)
    except SparkError as error:
        raise spark_log.failure("Spark did not start", error) from error
    except LOST_JVM as error:
        raise spark_log.failure("Spark did not start", with_ending(error, start)) from error


def with_ending(error: Exception, start: SessionStart) -> Exception:
    """The error of a lost JVM, with the exit status of the JVM in place of the error of its connection."""
    from penstock.jobs.supervision import JvmEnded, reason_of

    ending = start.jvm_ending()
    if ending is None:
        return error if isinstance(error, JvmEnded) else JvmEnded(f"the JVM has ended: {reason_of(error)}")
    return JvmEnded(f"the JVM of Spark {ending}; a new start continues after the last batch")


def supervise(
    spark: Any,
    attempt: Callable[[Callable[[], None]], None],
    retries: Retries,
    stop: Event,
    last_batch: Callable[[], int | None],
    show: Callable[[], None],
    *,
    ends_at_stop: bool = True,
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Run `attempt`, which starts a query and waits for its end, and again after a transient failure.

    `attempt` gets a function to call at intervals. `begin` is called before each attempt. With
    `ends_at_stop`, there is no other attempt after `stop` is set.
    """
    from penstock.jobs.executors import ExecutorWatch, executors_of
    from penstock.jobs.supervision import JvmEnded, QueryFailed, Transient, reason_of

    watch = ExecutorWatch(lambda: executors_of(spark), lambda text: typer.echo(text, err=True))

    def look() -> None:
        show()
        watch()

    while True:
        begin()
        try:
            attempt(look)
            return
        except (QueryFailed, Transient) as error:
            cause = error if isinstance(error, JvmEnded) else error.__cause__ or error
            wait_s = retries.next_wait_s(cause, last_batch())
            if wait_s is None:
                raise
            typer.echo(f"{reason_of(error)}; next try in {wait_s:g} s", err=True)
            if stop.wait(wait_s) and ends_at_stop:
                return
