"""What a benchmark may run against."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from bench.__main__ import _starters, measured_on
from bench.table import Contender, Row
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


def test_a_row_about_penstock_is_measured_on_its_versions_only() -> None:
    kinds: Any = [Contender(name, *[cast(Any, None)] * 3) for name in ("penstock", "kafka", "python3.14")]

    def names(**options: Any) -> list[str]:
        row = Row("row", "what", (), lambda contender, scale: {}, **options)
        return [contender.name for contender in measured_on(row, kinds)]

    assert names() == ["penstock", "kafka", "python3.14"]
    assert names(alone="reason") == ["penstock"]
    assert names(alone="reason", runs_package=True) == ["penstock", "python3.14"]
