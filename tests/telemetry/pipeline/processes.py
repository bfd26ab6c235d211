"""Processes below another one: those of Spark, by what they are for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["below", "command_of", "executors_below", "jvm_below", "kill", "wait_until_gone", "workers_below"]

_JVM = "org.apache.spark.deploy.SparkSubmit"
_EXECUTOR = "executor.CoarseGrainedExecutorBackend"
_PROGRAM = "startup.py"


def below(pid: int) -> Iterator[int]:
    """All processes below one."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:  # it has ended
            continue
        for child in map(int, children):
            yield child
            yield from below(child)


def command_of(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def jvm_below(pid: int) -> int:
    return next(each for each in below(pid) if _JVM in command_of(each))


def executors_below(pid: int) -> list[int]:
    """The JVMs of executors, where they are processes of their own."""
    return [each for each in below(pid) if _EXECUTOR in command_of(each)]


def workers_below(pid: int) -> list[int]:
    """Python processes that run for Spark: they have no children and do not only wait for a fork."""
    found = [each for each in below(pid) if not list(below(each))]
    others = (_JVM, _PROGRAM)
    return [each for each in found if not any(other in command_of(each) for other in others)]


def kill(pid: int) -> bool:
    """Kill a process; False if it has ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pids: list[int], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while left := [f"{pid}: {command_of(pid)}" for pid in pids if command_of(pid)]:
        assert time.monotonic() < deadline, f"outlived the command: {left}"
        time.sleep(0.05)
