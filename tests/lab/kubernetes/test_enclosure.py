"""Control groups of a cluster on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.home import MissingTool
from lab.kubernetes import enclosure
from lab.kubernetes.configs import CGROUP


def test_inner_groups_come_before_outer_ones(tmp_path: Path) -> None:
    (tmp_path / "node-1/pods/one").mkdir(parents=True)
    found = enclosure.groups_below(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in found] == [
        "node-1/pods/one",
        "node-1/pods",
        "node-1",
        ".",
    ]


def test_a_second_cluster_on_the_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu" / CGROUP / "node-1").mkdir(parents=True)
    monkeypatch.setattr(enclosure, "_GROUPS", tmp_path)
    monkeypatch.setattr(enclosure, "require", lambda *programs: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(MissingTool, match="another cluster runs on this machine"):
        enclosure.enclosed(["true"])
    assert (tmp_path / "cpu" / CGROUP / "node-1").is_dir()


def test_users_without_root_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclosure, "require", lambda *programs: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MissingTool, match="need root"):
        enclosure.enclosed(["true"])
