"""Quix Streams in an environment of its own: it wants an older confluent-kafka than our tests do."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.environments import make_environment
from lab.home import built, lab_root

REQUIREMENTS = Path(__file__).with_name("quixstreams.txt")


def quixstreams_python() -> Path:
    """The interpreter that can import `quixstreams`."""
    folder = built(lab_root() / "quixstreams", (REQUIREMENTS.read_text(), sys.version), _install)
    return folder / "bin" / "python"


def _install(folder: Path) -> None:
    make_environment(folder, "--no-deps", "--requirement", REQUIREMENTS)
