"""The cost of a broker, from `/proc`: processor seconds and resident memory, children included.

Threads and processes that end while they are looked at are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def read(path: Path) -> str:
    """A file of `/proc`; nothing if its process or thread has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def family(pid: int) -> list[int]:
    """The process and all its living descendants."""
    members = [pid]
    for member in members:
        # A JVM starts processes from any of its threads.
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            members += [int(child) for child in read(children).split()]
    return members


def cpu_seconds(*pids: int) -> float:
    """User and system time so far."""
    return _seconds(member for pid in pids for member in family(pid))


def own_cpu_seconds(pid: int) -> float:
    """As `cpu_seconds`, without the process's children."""
    return _seconds([pid])


def _seconds(members: Iterable[int]) -> float:
    ticks = 0
    for member in members:
        fields = read(Path(f"/proc/{member}/stat")).rpartition(")")[2].split()
        if fields:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_SECOND


def thread_seconds(pid: int) -> float:
    """As `cpu_seconds`, to the nanosecond, of the threads that live now: for times in which none ends."""
    schedules = (path for member in family(pid) for path in Path(f"/proc/{member}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in map(read, schedules) if text) / 1e9


def resident_bytes(pid: int) -> int:
    total = 0
    for member in family(pid):
        lines = read(Path(f"/proc/{member}/status")).splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total * 1024
