"""Limits on processor time, on a folder that looks like the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab import MissingTool
from lab.cgroup import PERIOD_US, CpuGroup


def groups(root: Path) -> list[Path]:
    return list((root / "cpu" if (root / "cpu").is_dir() else root).glob("penstock-*"))


def test_the_quota_is_a_share_of_the_period(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    group = CpuGroup("a", 0.5, tmp_path)
    (path,) = _entered(group, tmp_path)
    assert int((path / "cpu.cfs_quota_us").read_text()) == PERIOD_US // 2
    group.add([os.getpid()])
    assert (path / "cgroup.procs").read_text() == str(os.getpid())


def test_the_second_version_has_one_file(tmp_path: Path) -> None:
    (path,) = _entered(CpuGroup("a", 0.1, tmp_path), tmp_path)
    assert (path / "cpu.max").read_text() == f"{PERIOD_US // 10} {PERIOD_US}"


def _entered(group: CpuGroup, root: Path) -> list[Path]:
    group.__enter__()
    return groups(root)


def test_a_machine_without_control_groups_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match="cannot limit processor time"), CpuGroup("a", 0.5, tmp_path / "no"):
        raise AssertionError("not reached")
