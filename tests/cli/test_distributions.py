"""Two versions of the two distributions in one environment are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.distributions import mixed_versions

ROOT = Path(__file__).parents[2]


def installed(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / f"{name}.dist-info").mkdir()
    return folder


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["penstock_mq-0.2.0"],
        ["penstock_mq-0.2.0", "penstock_mq_client-0.2.0"],
        ["penstock_mq-0.2.0", "penstock-0.1.0", "penstock_mq_more-3.0"],
    ],
)
def test_one_version_is_accepted(tmp_path: Path, names: list[str]) -> None:
    assert mixed_versions(installed(tmp_path, *names)) is None


def test_two_versions_are_named_with_the_remedy(tmp_path: Path) -> None:
    said = mixed_versions(installed(tmp_path, "penstock_mq-0.2.0", "penstock_mq_client-0.3.0"))
    assert said is not None
    assert "penstock-mq-client 0.3.0 and penstock-mq 0.2.0 have replaced files of each other" in said
    assert "--force-reinstall --no-deps penstock-mq==0.2.0 penstock-mq-client==0.2.0`" in said


def test_a_package_without_a_folder_is_accepted(tmp_path: Path) -> None:
    assert mixed_versions(tmp_path / "package.zip" / "penstock") is None


@pytest.mark.process
def test_the_command_refuses_two_versions(tmp_path: Path) -> None:
    (installed(tmp_path, "penstock_mq-0.2.0", "penstock_mq_client-0.3.0") / "penstock").symlink_to(
        ROOT / "src" / "penstock"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from penstock.cli import main; main()"
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("penstock: penstock-mq-client 0.3.0 and penstock-mq 0.2.0 have replaced")
    assert done.stderr.count("\n") == 1
