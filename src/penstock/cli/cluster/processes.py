"""Broker processes that outlive the command that started them.

A pid alone does not identify a process, because the system reuses pids. So a pid file also has the start time
of its process. Invariant: a process is signalled, or counts as alive, only if both agree.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from penstock.cli.log_file import open_log

__all__ = [
    "THIS_PROGRAM",
    "Process",
    "Program",
    "is_alive",
    "process_of",
    "program_of",
    "read_pid_file",
    "send_signal",
    "spawn",
    "uninterrupted",
    "wait_for_end",
    "write_pid_file",
]

_PROC: Final = Path("/proc")
_LOOK_S: Final = 0.01


class Process(NamedTuple):
    """A process and its start time, in the form that the system reports."""

    pid: int
    started: str


class Program(NamedTuple):
    """The Penstock that runs a broker."""

    interpreter: str = sys.executable
    #: Version 0.1.0 has no --log-file. Its log goes to the same file, which is not rotated.
    takes_log_file: bool = True


THIS_PROGRAM: Final = Program()


def spawn(arguments: Sequence[str], log: Path, interpreter: str = sys.executable) -> tuple[Process, int]:
    """Run `penstock` with `arguments`, in a session of its own and with errors to `log`.

    Also returns the descriptor of a pipe that its standard output comes through.
    """
    from penstock.model.config.environment import is_setting

    # The broker's config file has the values of the environment variables, and may be newer.
    environment = {k: v for k, v in os.environ.items() if not is_setting(k, v) and k != "PENSTOCK_CONFIG"}
    errors = open_log(log)
    reading, writing = os.pipe()
    try:
        pid = os.posix_spawn(
            interpreter,
            [interpreter, "-P", "-m", "penstock", *arguments],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_DUP2, errors, 2),
                *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inherited()),
            ],
            setsid=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
        os.close(errors)
    return process_of(pid), reading


def _inherited() -> list[int]:
    """The descriptors that the caller of this command has left open.

    Why: the broker outlives the command. A lock or a pipe of a script would be held until the broker ends.
    """
    try:
        numbers = [int(name) for name in os.listdir("/dev/fd")]
    except FileNotFoundError:
        return []  # a system without it, or a container without /proc
    return [number for number in numbers if number > 2 and _is_inherited(number)]


def _is_inherited(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False  # the list's own, which is closed


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C and other signals: a started process must be recorded first."""
    heard: list[int] = []
    # Not a mask: that is of one thread, and another one would take the signal.
    before = {
        number: signal.signal(number, lambda number, _: heard.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        # Ctrl-C last: its handler raises, which skips the rest of this.
        for handled, handler in reversed(before.items()):
            signal.signal(handled, handler)
        for number in heard:
            signal.raise_signal(number)


def process_of(pid: int) -> Process:
    """A process that this one has just started."""
    return Process(pid, _started(pid) or "")


def write_pid_file(path: Path, process: Process) -> None:
    path.write_text(json.dumps(process._asdict()) + "\n", encoding="utf-8")


def read_pid_file(path: Path) -> Process | None:
    """The process in a pid file, alive or not; None without a valid file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Process(int(content["pid"]), str(content["started"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def program_of(process: Process) -> str | None:
    """The program that a process was started with, as it was named; None if that is not known."""
    try:
        words = (_PROC / str(process.pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return os.fsdecode(words[0]) if words[0] and is_alive(process) else None


def is_alive(process: Process) -> bool:
    return _started(process.pid) == process.started


def send_signal(process: Process, number: signal.Signals) -> bool:
    """Signal the process; false if it has ended."""
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(processes: Sequence[Process], timeout_s: float) -> list[Process]:
    """Wait until all have ended or the time is over; returns those that are still running."""
    deadline = time.monotonic() + timeout_s
    left = [process for process in processes if is_alive(process)]
    while left and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        left = [process for process in left if is_alive(process)]
    return left


def _started(pid: int) -> str | None:
    """The start time of a process; None if it has ended, also if it is a zombie."""
    if _PROC.is_dir():
        return _started_by_proc(pid)
    # Without /proc, as on macOS: the same, to the second.
    result = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True)
    state, _, started = result.stdout.strip().partition(" ")
    return started.strip() if state and not state.startswith("Z") else None


def _started_by_proc(pid: int) -> str | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; state is the first field behind it, start time the twentieth.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{boot}/{fields[19]}"
