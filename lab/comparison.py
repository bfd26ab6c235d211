"""Clients of other message systems, in an environment of their own: the project does not depend on them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lab.home import built, command, lab_root

__all__ = ["client_versions", "comparison_built", "comparison_python"]

REQUIREMENTS = Path(__file__).with_name("comparison.txt")
_LIST = ("-m", "pip", "list", "--format=json", "--disable-pip-version-check")


def comparison_python() -> Path:
    """The interpreter that can import every client of `comparison.txt`."""
    folder = built(_folder(), (REQUIREMENTS.read_text(), sys.version), _install)
    return folder / "bin" / "python"


def comparison_built() -> bool:
    """Returns true if the environment need not be made first."""
    return _folder().with_name("comparison.stamp").is_file()


def client_versions() -> dict[str, str]:
    """The version of each client, by the name of its package."""
    python = comparison_python()
    installed = json.loads(command([python, *_LIST], python.parent))
    wanted = {line.partition("==")[0] for line in REQUIREMENTS.read_text().splitlines() if "==" in line}
    return {each["name"]: each["version"] for each in installed if each["name"] in wanted}


def _folder() -> Path:
    return lab_root() / "comparison"


def _install(folder: Path) -> None:
    print(f"installing the clients of {REQUIREMENTS.name} (once)", flush=True)
    command([sys.executable, "-m", "venv", folder], folder)
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    command([*pip, "--requirement", REQUIREMENTS], folder)
