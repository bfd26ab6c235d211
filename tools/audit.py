"""Looks for known vulnerabilities and unwanted licences among the dependencies, without a network.

make audit

Vulnerabilities come from `tools/advisories.json`, a copy of the Python Packaging Advisory Database for the
pinned packages (`tools.advisories` refreshes it). The output has the date of the copy: an old one does not
know what was found since. Licences are those in the metadata of the installed packages; `ALLOWED` has those
that an Apache-2.0 project can depend on.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.version import InvalidVersion, Version

from tools.advisories import COPY
from tools.hashes import FILES, canonical, pinned

__all__ = ["ALLOWED", "EXCEPTIONS", "is_affected", "licence_of", "licence_problems", "vulnerabilities"]

#: the age of the copy from which on the output warns
_OLD_DAYS: Final = 30
#: advisories that do not apply to this project, each with the reason
IGNORED: Final[Mapping[str, str]] = {}
#: SPDX identifiers
ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "HPND",
        "ISC",
        "LLVM-exception",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "MPL-2.0",
        "PSF-2.0",
        "Python-2.0",
        "Unicode-3.0",
        "Unlicense",
        "Zlib",
    }
)
#: texts of older metadata
_TEXTS: Final = (
    (re.compile(r"apache", re.I), "Apache-2.0"),
    (re.compile(r"\bLGPL|Lesser General Public", re.I), "LGPL-2.1-or-later"),
    (re.compile(r"mozilla|\bMPL\b", re.I), "MPL-2.0"),
    (re.compile(r"python software foundation|\bPSFL?\b", re.I), "PSF-2.0"),
    (re.compile(r"\bISC\b", re.I), "ISC"),
    (re.compile(r"\bMIT\b", re.I), "MIT"),
    (re.compile(r"HPND|CMU", re.I), "MIT-CMU"),
    (re.compile(r"BSD", re.I), "BSD-3-Clause"),
)
_CLASSIFIER: Final = "License :: "
#: packages with a licence that is allowed for them alone, with the reason
EXCEPTIONS: Final = {
    # A library of its own that is imported, not copied, and that users can replace.
    "crc32c": "LGPL-2.1-or-later",
}
#: packages whose metadata has no licence, with the one in their files
_KNOWN: Final = {"python-snappy": "BSD-3-Clause"}


def is_affected(version: str, advisory: Mapping[str, Any]) -> bool:
    """Whether a version is in one of the ranges of an advisory (OSV)."""
    wanted = Version(version)
    if any(_is_same(each, wanted) for each in advisory["versions"]):
        return True
    return any(_is_within(wanted, events) for events in advisory["ranges"])


def _is_same(text: str, wanted: Version) -> bool:
    try:
        return Version(text) == wanted
    except InvalidVersion:
        return False


def _is_within(wanted: Version, events: Iterable[Mapping[str, str]]) -> bool:
    inside = False
    for event in events:
        for kind, at in event.items():
            reached = at == "0" or wanted >= Version(at)
            if kind == "introduced" and reached:
                inside = True
            elif (kind == "fixed" and reached) or (kind == "last_affected" and wanted > Version(at)):
                inside = False
    return inside


def vulnerabilities(
    pins: Iterable[tuple[str, str]], packages: Mapping[str, Iterable[Mapping[str, Any]]]
) -> Iterator[str]:
    """A line for each advisory that a pinned version has, and for each package that the copy lacks."""
    for name, version in pins:
        known = packages.get(canonical(name))
        if known is None:
            yield f"{name}: the copy of the advisory database does not have it: refresh the copy"
            continue
        for advisory in known:
            if advisory["id"] not in IGNORED and is_affected(version, advisory):
                aliases = ", ".join(advisory["aliases"])
                yield f"{name} {version}: {advisory['id']}" + (f" ({aliases})" if aliases else "")


def licence_of(found: Any) -> str:
    """The licence in the metadata of a package, as an SPDX expression; the text there if it is unclear."""
    name = canonical(found["Name"])
    if name in _KNOWN:
        return _KNOWN[name]
    expression = found.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [each for each in found.get_all("Classifier") or () if each.startswith(_CLASSIFIER)]
    text = "; ".join(each.rpartition(" :: ")[2] for each in classifiers if each.count(" :: ") > 1)
    text = text or str(found.get("License") or "").strip().partition("\n")[0]
    return next((spdx for pattern, spdx in _TEXTS if pattern.search(text)), text or "unknown")


def licence_problems(licences: Mapping[str, str]) -> Iterator[str]:
    """A line for each package whose licence is not allowed. Of alternatives (`OR`) one is enough."""
    for name, licence in licences.items():
        if EXCEPTIONS.get(name) == licence:
            continue
        choices = re.split(r"\s+OR\s+", licence.replace("(", " ").replace(")", " ").strip())
        parts = [re.split(r"\s+(?:AND|WITH)\s+", choice.strip()) for choice in choices]
        if not any(all(part.strip() in ALLOWED for part in each) for each in parts):
            yield f"{name}: the licence {licence!r} is not in the list of tools/audit.py"


def main() -> None:
    copy = json.loads(COPY.read_text(encoding="utf-8"))
    pins = [pin for file in FILES for pin in pinned(Path(file).read_text())]
    day = date.fromisoformat(copy["date"])
    age = (datetime.now(UTC).date() - day).days
    print(f"advisories: {len(copy['packages'])} packages, as of {day} ({age} days ago)")
    if age > _OLD_DAYS:
        print(
            "warning: vulnerabilities that were published since are not found (CONTRIBUTING.md, Dependencies)"
        )
    names = {canonical(name) for name, _ in pins}
    installed = {canonical(each.metadata["Name"]): each.metadata for each in metadata.distributions()}
    licences = {name: licence_of(installed[name]) for name in sorted(names & set(installed))}
    print(f"licences: {', '.join(sorted(set(licences.values())))}")
    missing = sorted(names - set(installed))
    if missing:
        print(f"not installed, so their licences are not checked: {', '.join(missing)}")
    problems = [*vulnerabilities(pins, copy["packages"]), *licence_problems(licences)]
    for problem in problems:
        print(problem)
    print(f"{len(pins)} packages: " + (f"{len(problems)} problems" if problems else "no known vulnerability"))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
