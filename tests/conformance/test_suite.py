"""A test process that ends, and one that does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conformance.suite import run_logged

pytestmark = pytest.mark.process


def python(source: str, folder: Path, timeout: float) -> int | None:
    return run_logged([sys.executable, "-c", source], folder, {}, folder / "log", timeout)


def test_a_process_has_its_exit_status_and_its_whole_output(tmp_path: Path) -> None:
    source = "import sys; print('said'); print('complained', file=sys.stderr); sys.exit(7)"
    assert python(source, tmp_path, 30.0) == 7
    assert sorted((tmp_path / "log").read_text().split()) == ["complained", "said"]


def test_a_hang_is_killed_and_has_no_exit_status(tmp_path: Path) -> None:
    assert python("import signal; signal.pause()", tmp_path, 0.5) is None
