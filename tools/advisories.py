"""Makes the offline copy of the advisory database that `make audit` uses.

python -m tools.advisories FOLDER DATE

FOLDER is a clone of the Python Packaging Advisory Database (the repository `advisory-database` of PyPA), in
the format of OSV; DATE is that of its last commit. The copy, `tools/advisories.json`, has the packages of the
files of constraints only, and of each advisory its id, its aliases and the affected versions. Packages
without an advisory are listed, too: so the audit knows which packages the copy is about.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, Final

import yaml

from tools.hashes import FILES, canonical, pinned

__all__ = ["COPY", "compact", "names_of_project"]

COPY: Final = Path(__file__).parent / "advisories.json"
_ECOSYSTEM: Final = "PyPI"


def names_of_project() -> list[str]:
    """The names of all pinned packages."""
    found = {canonical(name) for file in FILES for name, _ in pinned(Path(file).read_text())}
    return sorted(found)


def compact(advisory: dict[str, Any], name: str) -> dict[str, Any] | None:
    """What the audit needs of an advisory; None if it is not about a package, or was withdrawn."""
    if "withdrawn" in advisory:
        return None
    ranges: list[list[dict[str, str]]] = []
    versions: list[str] = []
    for affected in advisory.get("affected", ()):
        package = affected["package"]
        if package["ecosystem"] != _ECOSYSTEM or canonical(package["name"]) != name:
            continue
        found = [each["events"] for each in affected.get("ranges", ()) if each["type"] == "ECOSYSTEM"]
        ranges += [[{kind: str(at) for kind, at in event.items()} for event in events] for events in found]
        if not found:
            versions += map(str, affected.get("versions", ()))
    if not ranges and not versions:
        return None
    return {
        "id": advisory["id"],
        "aliases": advisory.get("aliases", []),
        "ranges": ranges,
        "versions": versions,
    }


def copied(folder: Path, names: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The advisories of each package."""
    found: dict[str, list[dict[str, Any]]] = {}
    folders = {canonical(each.name): each for each in (folder / "vulns").iterdir() if each.is_dir()}
    for name in names:
        files = sorted(folders[name].glob("*.yaml")) if name in folders else []
        made = (compact(yaml.safe_load(file.read_text(encoding="utf-8")), name) for file in files)
        found[name] = [each for each in made if each is not None]
    return found


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tools.advisories FOLDER DATE (as 2026-01-31)")
    folder, day = Path(sys.argv[1]), date.fromisoformat(sys.argv[2])
    if not (folder / "vulns").is_dir():
        sys.exit(f"{folder} is not a clone of the advisory database: it has no folder vulns")
    found = copied(folder, names_of_project())
    lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in found.items()]
    content = f'{{"date": "{day.isoformat()}", "packages": {{\n' + ",\n".join(lines) + "\n}}\n"
    COPY.write_text(content, encoding="utf-8")
    print(f"{sum(map(len, found.values()))} advisories of {len(found)} packages, as of {day}")


if __name__ == "__main__":
    main()
