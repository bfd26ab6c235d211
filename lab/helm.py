"""Helm, as a program of the lab: built once by Go's tool, not installed.

python -m lab.helm
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from lab.home import LabError, built, command, lab_root, require

__all__ = ["HELM", "KUBERNETES", "helm_built", "helm_program"]

HELM: Final = "v3.22.0"
#: Helm has to be told for which Kubernetes it renders, if it cannot ask one
KUBERNETES: Final = "v1.34.4"
_PACKAGE: Final = f"helm.sh/helm/v3/cmd/helm@{HELM}"


def helm_program() -> Path:
    """The program, built on first use; `LabError` if there is no Go or no module proxy."""
    require("go")
    return built(_folder(), (HELM,), _build) / "helm"


def helm_built() -> Path | None:
    """A program that is here already: of the lab, or installed."""
    program = _folder() / "helm"
    if program.is_file():
        return program
    installed = shutil.which("helm")
    return None if installed is None else Path(installed)


def _folder() -> Path:
    return lab_root() / "helm"


def _build(folder: Path) -> None:
    print(f"building helm {HELM} (once, some minutes)", flush=True)
    variables = ["GOTOOLCHAIN=local", "CGO_ENABLED=0", "GOFLAGS=-p=2", f"GOBIN={folder}"]
    command(["env", *variables, "go", "install", "-trimpath", "-ldflags=-s -w", _PACKAGE], folder)


if __name__ == "__main__":
    try:
        print(helm_program())
    except LabError as error:
        sys.exit(f"helm cannot be built, and the tests that render the chart are skipped: {error}")
