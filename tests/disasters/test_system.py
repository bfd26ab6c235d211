"""How a broker's disk is made full, and gets room again."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from disasters.system import SYSTEMS


def test_filling_a_small_disk_ends_when_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    # Every write to this device fails for want of room.
    (tmp_path / "data" / "ballast").symlink_to("/dev/full")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=1 << 20))
    SYSTEMS["kafka"].fill(tmp_path)
    SYSTEMS["kafka"].free(tmp_path)
    assert not list((tmp_path / "data").iterdir())
