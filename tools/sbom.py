"""Writes a software bill of materials: CycloneDX 1.6, as JSON to standard output. No network is needed.

make sbom > sbom.json

It has each pinned package with its version, its licence, and the hashes of all files that an installation
accepts. The scope says what a package is needed for: `required` by every installation, `optional` by an
extra, `excluded` for development only.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

from penstock import __version__
from tools.audit import licence_of
from tools.hashes import canonical, pinned

__all__ = ["bill", "hashes_in", "reached"]

_PROJECT: Final = "penstock-mq"
_PINS: Final = Path("constraints.txt")
_HASHES: Final = Path("hashes.txt")
#: the extra with what only development needs
_DEVELOPMENT: Final = "dev"
_ENTRY: Final = re.compile(r"^(?P<name>[^\s=]+)==\S+ \\$(?P<hashes>(?:\n +--hash=sha256:.*)+)", re.MULTILINE)
_HASH: Final = re.compile(r"sha256:([0-9a-f]{64})")


def hashes_in(text: str) -> dict[str, list[str]]:
    """The SHA-256 of the files of each package, in the form of pip."""
    return {canonical(found["name"]): _HASH.findall(found["hashes"]) for found in _ENTRY.finditer(text)}


def reached(
    start: str, extras: Collection[str], requirements: Mapping[str, Iterable[str]]
) -> dict[str, None]:
    """The packages that a package needs with some of its extras, directly or not."""
    found: dict[str, None] = {}
    waiting = [(start, frozenset(extras))]
    seen = set()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        name, wanted = place
        for text in requirements.get(name, ()):
            needed = Requirement(text)
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted)):
                found[canonical(needed.name)] = None
                waiting.append((canonical(needed.name), frozenset(needed.extras)))
    return found


def bill(
    pins: Iterable[tuple[str, str]],
    hashes: Mapping[str, Iterable[str]],
    licences: Mapping[str, str],
    required: Collection[str],
    optional: Collection[str],
) -> dict[str, Any]:
    """The document. A pinned package that no extra needs is there for development."""
    components = []
    for name, version in pins:
        key = canonical(name)
        scope = "required" if key in required else "optional" if key in optional else "excluded"
        purl = f"pkg:pypi/{key}@{version}"
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "scope": scope,
            "purl": purl,
            "properties": [{"name": "pip:hash", "value": f"sha256:{each}"} for each in hashes[key]],
        }
        if key in licences:
            component["licenses"] = [{"expression": licences[key]}]
        components.append(component)
    project = {
        "type": "application",
        "bom-ref": f"pkg:pypi/{_PROJECT}@{__version__}",
        "name": _PROJECT,
        "version": __version__,
        "purl": f"pkg:pypi/{_PROJECT}@{__version__}",
        "licenses": [{"expression": "Apache-2.0"}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": project},
        "components": components,
    }


def main() -> None:
    installed = {canonical(each.metadata["Name"]): each for each in metadata.distributions()}
    if _PROJECT not in installed:
        sys.exit(f"{_PROJECT} is not installed here: run `make sbom`")
    extras = set(installed[_PROJECT].metadata.get_all("Provides-Extra") or ()) - {_DEVELOPMENT}
    requirements = {name: each.requires or [] for name, each in installed.items()}
    document = bill(
        pinned(_PINS.read_text()),
        hashes_in(_HASHES.read_text()),
        {name: licence_of(each.metadata) for name, each in installed.items()},
        reached(_PROJECT, (), requirements),
        reached(_PROJECT, extras, requirements),
    )
    json.dump(document, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
