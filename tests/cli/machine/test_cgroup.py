"""The limits of control groups, in trees as the kernel shows them."""

from __future__ import annotations

from pathlib import Path

from penstock.cli.machine.cgroup import cpu_limit, memory_limit


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def test_a_container_with_version_2_sees_its_own_group_at_the_root(tmp_path: Path) -> None:
    root = write(tmp_path / "fs", {"cpu.max": "150000 100000", "memory.max": "268435456"})
    own = write(tmp_path, {"own": "0::/"}) / "own"
    assert cpu_limit(root, own) == 1.5
    assert memory_limit(root, own) == 256 << 20


def test_version_2_without_limits(tmp_path: Path) -> None:
    root = write(tmp_path / "fs", {"cpu.max": "max 100000", "memory.max": "max"})
    own = write(tmp_path, {"own": "0::/"}) / "own"
    assert cpu_limit(root, own) is None
    assert memory_limit(root, own) is None


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    files = {
        "cpu/cpu.cfs_quota_us": "-1",
        "cpu/cpu.cfs_period_us": "100000",
        "cpu/pods/a/cpu.cfs_quota_us": "50000",
        "cpu/pods/a/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "9223372036854771712",
        "memory/pods/a/memory.limit_in_bytes": "134217728",
    }
    root = write(tmp_path / "fs", files)
    own = write(tmp_path, {"own": "5:cpu,cpuacct:/pods/a\n4:memory:/pods/a\n3:pids:/other"}) / "own"
    assert cpu_limit(root, own) == 0.5
    assert memory_limit(root, own) == 128 << 20


def test_the_lowest_limit_of_the_groups_above_counts(tmp_path: Path) -> None:
    files = {"a/cpu.max": "100000 100000", "a/b/cpu.max": "400000 100000", "a/b/memory.max": "max"}
    root = write(tmp_path / "fs", files)
    own = write(tmp_path, {"own": "0::/a/b"}) / "own"
    assert cpu_limit(root, own) == 1.0
    assert memory_limit(root, own) is None


def test_a_system_without_groups(tmp_path: Path) -> None:
    assert cpu_limit(tmp_path, tmp_path / "none") is None
    assert memory_limit(tmp_path, tmp_path / "none") is None
