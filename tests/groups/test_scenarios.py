"""Golden scenarios of groups: requests of members, and their responses.

PENSTOCK_REWRITE=1 writes down what happens instead of comparing; the difference is then for a person to
judge.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.groups.script import run_script

SCENARIOS = sorted(Path(__file__).parent.joinpath("scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text()
    happened = run_script(text)
    if os.environ.get("PENSTOCK_REWRITE"):
        path.write_text(happened)
    assert happened == text
