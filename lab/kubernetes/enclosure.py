"""Runs a command in namespaces of its own, and leaves nothing of it behind.

Networks, mounts and processes of the command end with it. Control groups do not, so they are removed here.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from lab.home import MissingTool, require
from lab.kubernetes.configs import CGROUP
from lab.kubernetes.layout import NODES

__all__ = ["enclosed", "groups_below"]

_ENTER: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
#: The shell is the first process, and reaps what others leave behind.
_FIRST: Final = 'mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir /run/netns && "$@" & wait $!'
_GROUPS: Final = Path("/sys/fs/cgroup")
_REMOVAL_S: Final = 20.0


def enclosed(words: Sequence[str]) -> int:
    """The exit status of the command; `MissingTool` if this process may not make namespaces."""
    require("unshare", "nsenter", "ip", "mount")
    if os.geteuid() != 0:
        raise MissingTool("nodes need root, for namespaces and control groups of their own")
    hierarchies = _hierarchies(_GROUPS)
    taken = [each / CGROUP for each in hierarchies if (each / CGROUP).is_dir()]
    if taken:
        raise MissingTool(f"{taken[0]} is there: another cluster runs on this machine")
    try:
        _make_groups(hierarchies)
        return subprocess.run([*_ENTER, "sh", "-c", _FIRST, "sh", *words]).returncode
    finally:
        _remove_groups(hierarchies)


def groups_below(group: Path) -> list[Path]:
    """A control group and all below it, the innermost first."""
    return sorted([group, *(path for path in group.rglob("*") if path.is_dir())], reverse=True)


def _hierarchies(root: Path) -> list[Path]:
    """Of version 1, one for each controller; of version 2, the root itself."""
    if (root / "cgroup.controllers").is_file():
        return [root]
    return [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]


def _make_groups(hierarchies: Iterable[Path]) -> None:
    for hierarchy in hierarchies:
        for name in ("", *(node.name for node in NODES)):
            group = hierarchy / CGROUP / name
            group.mkdir()
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (group / setting).is_file():
                    (group / setting).write_text((group.parent / setting).read_text())


def _remove_groups(hierarchies: Iterable[Path]) -> None:
    """Processes that were killed need a moment to leave their groups."""
    end_s = time.monotonic() + _REMOVAL_S
    left = [group for each in hierarchies for group in groups_below(each / CGROUP) if group.is_dir()]
    while left:
        for group in left:
            try:
                group.rmdir()
            except OSError as error:
                if time.monotonic() > end_s:
                    raise MissingTool(f"{group} cannot be removed: {error.strerror}") from error
        left = [group for group in left if group.is_dir()]
        time.sleep(0.1 if left else 0)
