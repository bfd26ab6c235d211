"""Limits on the processor time of processes, by a control group of the kernel. Needs root."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from lab.home import MissingTool

__all__ = ["PERIOD_US", "CpuGroup", "cpu_limited"]

_ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 50_000
"""The quota is for this time. A group that has used it up stands still until the next period."""


class CpuGroup:
    """A group whose processes together get a share of one core. Leaving it lets them run freely again.

    Works with the controller `cpu` of version 1, and with version 2 if the controller is enabled.
    """

    def __init__(self, name: str, cores: float, root: Path = _ROOT) -> None:
        self._parent = root / "cpu" if (root / "cpu").is_dir() else root
        self._is_first_version = self._parent != root
        self._path = self._parent / f"penstock-{os.getpid()}-{name}"
        self._cores = cores

    def __enter__(self) -> Self:
        try:
            self._path.mkdir()
            self._limit()
        except OSError as error:
            self._remove()
            raise MissingTool(f"cannot limit processor time by a cgroup: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in (self._path / "cgroup.procs").read_text().split():
            self._move(int(pid), self._parent)
        self._remove()

    def add(self, pids: Iterable[int]) -> None:
        """Move processes, with all their threads, into the group."""
        for pid in pids:
            self._move(pid, self._path)

    def throttled_periods(self) -> int:
        """How many periods ended with the quota used up: 0 if the limit was never reached."""
        lines = (self._path / "cpu.stat").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("nr_throttled")), 0)

    def _limit(self) -> None:
        quota = max(1000, int(self._cores * PERIOD_US))
        if self._is_first_version:
            (self._path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self._path / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (self._path / "cpu.max").write_text(f"{quota} {PERIOD_US}")

    @staticmethod
    def _move(pid: int, group: Path) -> None:
        try:
            (group / "cgroup.procs").write_text(str(pid))
        except ProcessLookupError:
            # It has ended.
            return

    def _remove(self) -> None:
        if self._path.is_dir():
            self._path.rmdir()


@contextmanager
def cpu_limited(limits: Iterable[tuple[str, float, Iterable[int]]]) -> Iterator[list[CpuGroup]]:
    """Limit several sets of processes, each given as (name, cores, process ids)."""
    groups: list[CpuGroup] = []
    try:
        for name, cores, pids in limits:
            group = CpuGroup(name, cores).__enter__()
            groups.append(group)
            group.add(pids)
        yield groups
    finally:
        for group in groups:
            group.__exit__(None, None, None)
