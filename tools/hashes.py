"""Writes the hashes of all files of the pinned packages, so that pip installs nothing else.

python -m tools.hashes

`constraints.txt`, `constraints-build.txt` and `constraints-docs.txt` have the versions; `hashes.txt`,
`hashes-build.txt` and `hashes-docs.txt` get the SHA-256 of every file of each version, for all interpreters
and systems that the project supports. The hashes come from the package index that pip is set up for. Run it
after a change of a version, and review the difference: a line that changes without its version is an attack,
or an index with other files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["FILES", "canonical", "entry", "is_supported", "pinned"]

#: the files with versions, and those with hashes
FILES: Final = {
    "constraints.txt": "hashes.txt",
    "constraints-build.txt": "hashes-build.txt",
    "constraints-docs.txt": "hashes-docs.txt",
}
_PIN: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)")
_WHEEL: Final = re.compile(
    r"[^-]+-[^-]+(?:-\d[^-]*)?-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<system>[^-]+)\.whl"
)
_OLDEST: Final = 11
_OTHER_SYSTEMS: Final = re.compile(r"win32|win_|ios_|android_|emscripten|pyodide|wasm")
_HEAD: Final = "# Written by `python -m tools.hashes` from {source}.\n"


def canonical(name: str) -> str:
    """The name of a package as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(text: str) -> list[tuple[str, str]]:
    """The names and versions in a file of constraints; ValueError for a line that pins nothing."""
    found = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = _PIN.fullmatch(line)
        if match is None:
            raise ValueError(f"{line!r} is not NAME==VERSION")
        found.append((match["name"], match["version"]))
    return found


def is_supported(filename: str) -> bool:
    """Whether a file is a source distribution, or a wheel for CPython from 3.11 on, on Linux or macOS."""
    if filename.endswith((".tar.gz", ".zip")):
        return True
    match = _WHEEL.fullmatch(filename)
    if match is None or _OTHER_SYSTEMS.search(match["system"]):
        return False
    for python in match["python"].split("."):
        if python in ("py3", "py2") or (python.startswith("cp3") and "abi3" in match["abi"]):
            return True
        version = re.fullmatch(r"(?:cp|py)3(\d+)", python)
        if version is not None and int(version[1]) >= _OLDEST:
            return True
    return False


def entry(name: str, version: str, hashes: Iterable[str]) -> str:
    """One package in the form of pip."""
    lines = [f"{name}=={version}", *(f"    --hash=sha256:{each}" for each in sorted(set(hashes)))]
    return " \\\n".join(lines) + "\n"


def _files(name: str, version: str) -> Iterator[tuple[str, str]]:
    """The files of a version and their SHA-256, as the index lists them."""
    from pip._vendor.packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )
    from pip._vendor.packaging.version import InvalidVersion, Version

    wanted = Version(version)
    for link in _links(name):
        parse = parse_wheel_filename if link.filename.endswith(".whl") else parse_sdist_filename
        try:
            found = parse(link.filename)[1]
        except (InvalidSdistFilename, InvalidVersion, InvalidWheelFilename):
            continue  # a file of long ago
        if found == wanted:
            if link.hash_name != "sha256":
                raise ValueError(f"the index has no SHA-256 of {link.filename}")
            yield link.filename, str(link.hash)


_collector: Any = None


def _links(name: str) -> list[Any]:
    """All files of a package. pip's own code: it knows the index, its certificates and its password."""
    global _collector
    from pip._internal.commands.install import InstallCommand
    from pip._internal.index.collector import LinkCollector, parse_links
    from pip._internal.models.link import Link

    if _collector is None:
        command = InstallCommand("install", "")
        options, _ = command.parse_args([])
        session = command._build_session(options)
        _collector = LinkCollector.create(session, options=options), options.index_url
    collector, index = _collector
    page = collector.fetch_response(Link(f"{index.rstrip('/')}/{canonical(name)}/"))
    if page is None:
        raise ValueError(f"the index does not have {name}")
    return list(parse_links(page))


def main() -> None:
    for source, target in FILES.items():
        parts = []
        for name, version in pinned(Path(source).read_text()):
            hashes = [digest for filename, digest in _files(name, version) if is_supported(filename)]
            if not hashes:
                sys.exit(f"the index has no file of {name} {version} for this project")
            print(f"{name} {version}: {len(hashes)}")
            parts.append(entry(name, version, hashes))
        Path(target).write_text(_HEAD.format(source=source) + "".join(parts))


if __name__ == "__main__":
    main()
