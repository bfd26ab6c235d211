"""The Python packages of an image: Penstock, and what it needs with some of its extras."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from tools.hashes import canonical
from tools.image.entries import Entry, directory, file, from_path
from tools.image.interpreter import LIBRARY, PYTHON
from tools.sbom import reached

__all__ = ["EXTRAS", "PROJECT", "dependencies", "project"]

PROJECT: Final = "penstock-mq"
#: what brokers, consoles and backups need; Spark and the telemetry pipeline run elsewhere
EXTRAS: Final = ("archive", "console", "otel", "security")
_HOME: Final = f"{LIBRARY}/site-packages"
_UNUSED: Final = (".pyc", ".pyi", ".pyx", ".pxd", ".c", ".h", ".cpp")
_SOURCES: Final = Path(__file__).parents[2] / "src/penstock"
_PROGRAM: Final = f"#!/{PYTHON}\nimport sys\n\nfrom penstock.cli import main\n\nsys.exit(main())\n"


def dependencies() -> Iterator[Entry]:
    """The files of all packages that are installed here and that Penstock needs."""
    installed = {canonical(each.metadata["Name"]): each for each in metadata.distributions()}
    requirements = {name: each.requires or [] for name, each in installed.items()}
    yield directory(_HOME)
    for name in sorted(reached(PROJECT, EXTRAS, requirements)):
        if name not in installed:
            raise SystemExit(f"{name} is not installed here: run `make image`")
        yield from _files(installed[name])


def _files(package: metadata.Distribution) -> Iterator[Entry]:
    for each in sorted(package.files or [], key=str):
        path = Path(str(each))
        unused = path.suffix in _UNUSED or path.name in (
            "RECORD",
            "INSTALLER",
            "REQUESTED",
            "direct_url.json",
        )
        if path.parts[0] != ".." and not unused:
            yield from_path(f"{_HOME}/{path}", Path(str(each.locate())).resolve())


def project() -> Iterator[Entry]:
    """Penstock itself, from the sources, with its metadata and its command."""
    for path in sorted(_SOURCES.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield from_path(f"{_HOME}/penstock/{path.relative_to(_SOURCES)}", path)
    package = metadata.distribution(PROJECT)
    home = f"{_HOME}/{PROJECT.replace('-', '_')}-{package.version}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        text = package.read_text(name)
        if text is not None:
            yield file(f"{home}/{name}", text.encode())
    yield file("usr/local/bin/penstock", _PROGRAM.encode(), 0o755)
