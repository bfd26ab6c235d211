"""The broker of another environment."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.penstock import penstock


def test_another_environment_does_not_get_this_ones_path(tmp_path: Path) -> None:
    assert penstock(tmp_path, {}, sys.executable).environment == {}
    assert penstock(tmp_path, {}, "/elsewhere/bin/python").environment == {"PYTHONPATH": ""}
