"""Starts the brokers of a cluster on this machine."""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from penstock.cli.cluster.broker_home import BrokerHome
from penstock.cli.cluster.processes import THIS_PROGRAM, Program, wait_for_end
from penstock.cli.failure import Failure

__all__ = ["start_all", "stop_again"]

_READY: Final = b"ready "
_CLEANUP_S: Final = 10.0


def start_all(
    homes: Sequence[BrokerHome],
    timeout_s: float,
    *,
    together: bool = False,
    started: Callable[[BrokerHome], None] = lambda home: None,
    program: Program = THIS_PROGRAM,
) -> None:
    """Start brokers that are not running and wait until each is ready; calls `started` for each process.

    A Failure names a broker that is not ready. The other brokers keep running, unless all are started
    `together`, for the first time: then all are ended. `program` is that of this process by default.
    """
    outputs: dict[int, BrokerHome] = {}
    try:
        for home in homes:
            outputs[home.start(program)] = home
            started(home)
        with _progress(len(homes)) as advance:
            failures = _await_ready(dict(outputs), timeout_s, advance, together=together)
        if failures:
            raise failures[0]
    except BaseException:
        if together:
            stop_again(homes)
        raise
    finally:
        for output in outputs:
            os.close(output)


def _await_ready(
    outputs: dict[int, BrokerHome], timeout_s: float, advance: Callable[[], None], *, together: bool
) -> list[Failure]:
    """The failures, after each broker is ready, has ended, or is late; at once if they start together."""
    deadline = time.monotonic() + timeout_s
    lines = dict.fromkeys(outputs, b"")
    failures: list[Failure] = []
    with selectors.DefaultSelector() as selector:
        for output in outputs:
            selector.register(output, selectors.EVENT_READ)
        while outputs and not (together and failures):
            events = selector.select(max(0.0, deadline - time.monotonic()))
            if not events:
                return [*failures, _late(list(outputs.values()), timeout_s)]
            for key, _ in events:
                read = os.read(key.fd, 1024)
                lines[key.fd] += read
                # Read the whole line: closing the pipe before its end would break the writer.
                if read and not read.endswith(b"\n"):
                    continue
                home = outputs.pop(key.fd)
                selector.unregister(key.fd)
                if lines[key.fd].startswith(_READY):
                    advance()
                else:
                    home.pid_file.unlink(missing_ok=True)
                    failures.append(_failed(home))
    return failures


def _failed(home: BrokerHome) -> Failure:
    return Failure(f"broker {home.id} did not start: {home.last_words()} ({home.log_file})")


def _late(homes: Sequence[BrokerHome], timeout_s: float) -> Failure:
    names = ", ".join(str(home.id) for home in homes)
    return Failure(
        f"not ready within {timeout_s:g} s: broker {names}; raise --timeout, or see {homes[0].log_file}, "
        f"which ends with: {homes[0].last_words()}"
    )


def stop_again(homes: Collection[BrokerHome]) -> None:
    """Kill the brokers that were started."""
    ending = [process for home in homes if (process := home.signal(signal.SIGKILL)) is not None]
    wait_for_end(ending, _CLEANUP_S)
    for home in homes:
        home.pid_file.unlink(missing_ok=True)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """A progress bar over brokers, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("brokers ready"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
