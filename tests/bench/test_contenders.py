"""What a benchmark may run against."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.__main__ import _starters
from lab import LabError


def test_another_interpreter_is_a_contender_if_it_has_the_package(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3.14"
    with pytest.raises(LabError, match="there is penstock, kafka, or a path"):
        _starters(str(python))
    python.parent.mkdir()
    python.with_name("penstock").touch()
    starter, _ = _starters(str(python))
    server = starter(tmp_path, {})
    assert server.command[0] == str(python.with_name("penstock"))
    ours = _starters("penstock")[0](tmp_path, {})
    assert ours.command[0] == str(Path(sys.executable).with_name("penstock"))
