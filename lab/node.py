"""The packages of the Node.js example, installed by npm into a folder of the lab."""

from __future__ import annotations

from pathlib import Path

from lab.home import REPOSITORY, built, command, lab_root, require

EXAMPLE = REPOSITORY / "examples" / "node"


def node_example() -> Path:
    """A folder with the example and its packages; `LabError` if there is no Node.js or no registry."""
    require("node", "npm")
    files = ("package.json", "events.js")
    return built(lab_root() / "node-example", [(EXAMPLE / name).read_text() for name in files], _install)


def _install(folder: Path) -> None:
    for name in ("package.json", "events.js"):
        (folder / name).write_text((EXAMPLE / name).read_text())
    command(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--fetch-retries=1"], folder)
