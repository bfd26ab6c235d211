"""How far pip is, from what it says."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tools.environment import make, steps

SAID = [
    "Obtaining file:///here\n",
    "Collecting numpy==2.0 (from penstock)\n",
    "  Downloading numpy.whl (1 MB)\n",
    "Collecting rich==14.0\n",
    "Installing collected packages: numpy, rich, penstock\n",
    "Successfully installed numpy-2.0 penstock-0.1.0 rich-14.0\n",
]


def test_each_package_moves_the_bar() -> None:
    assert list(steps(SAID, expected=4)) == [
        ("collecting packages", f"[{'#' * 7}{' ' * 23}] 1/4 numpy==2.0"),
        ("collecting packages", f"[{'#' * 15}{' ' * 15}] 2/4 rich==14.0"),
        ("installing packages", "3 of them"),
    ]


def test_more_packages_than_were_expected_do_not_overflow_it() -> None:
    assert [progress for _, progress in steps(SAID, expected=1)][1].startswith(f"[{'#' * 30}] 2/2")


@pytest.mark.process
@pytest.mark.parametrize(
    ("script", "code", "shown"),
    [
        (f"print({''.join(SAID)!r}, end='')", 0, "collecting packages\ninstalling packages\n"),
        ("print('Collecting no-such'); print('ERROR: none'); exit(3)", 3, "no-such\nERROR: none\n"),
    ],
)
def test_only_a_failure_shows_the_output_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, code: int, shown: str
) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!{sys.executable}\n{script}\n")
    python.chmod(0o755)
    (tmp_path / "hashes.txt").write_text("numpy==2.0 \\\n    --hash=sha256:00\n")
    monkeypatch.chdir(tmp_path)
    screen = io.StringIO()
    assert make(tmp_path / ".venv", screen) == code
    assert screen.getvalue().endswith(shown)
