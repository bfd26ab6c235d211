"""The limits of this process's control group: processor time and memory, of version 1 and 2.

A container sees its own group at the root of the file system of groups; other processes are in a folder that
`/proc/self/cgroup` names. Both are read, and the folders above: the lowest limit counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["cpu_limit", "memory_limit"]

_ROOT: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
#: version 1 has no word for "no limit"; a number above this is none
_NO_LIMIT: Final = 1 << 60


def cpu_limit(root: Path = _ROOT, own: Path = _OWN) -> float | None:
    """The cores that this process may use by its quota; None without one."""
    found = [
        limit
        for folder in _folders(root, own, "cpu")
        for limit in (_quota(folder / "cpu.max"), _first_version_quota(folder))
        if limit is not None
    ]
    return min(found, default=None)


def memory_limit(root: Path = _ROOT, own: Path = _OWN) -> int | None:
    """The bytes of memory that this process may use; None without a limit."""
    names = ("memory.max", "memory.limit_in_bytes")
    found = [
        limit
        for folder in _folders(root, own, "memory")
        for limit in (_number(folder / name) for name in names)
        if limit is not None and 0 < limit < _NO_LIMIT
    ]
    return min(found, default=None)


def _folders(root: Path, own: Path, controller: str) -> Iterator[Path]:
    """The folders of the groups of this process that may limit it, from the root down."""
    yield root
    yield root / controller
    try:
        lines = own.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            home = root
        elif controller in controllers.split(","):
            home = root / controller
        else:
            continue
        for part in Path(path.lstrip("/")).parts:
            home = home / part
            yield home


def _quota(path: Path) -> float | None:
    """The cores in `cpu.max` of version 2: quota and period, both in microseconds."""
    try:
        quota, period = path.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None  # no such file, or `max`


def _first_version_quota(folder: Path) -> float | None:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota is not None and quota > 0 and period else None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None  # no such file, or `max`
