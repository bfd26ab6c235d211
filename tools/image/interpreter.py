"""The files that this interpreter needs to run: its program, its library, and what they are linked to.

The layout is that of the official Python images: `/usr/local/bin/python3` and `/usr/local/lib/python3.N`.
Shared libraries are in one folder, where the dynamic loader looks by itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tools.image.entries import Entry, directory, file, from_path, link

__all__ = ["CERTIFICATES", "LIBRARY", "PYTHON", "USER", "libraries", "linked", "system"]

_NAME: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
PYTHON: Final = "usr/local/bin/python3"
LIBRARY: Final = f"usr/local/lib/{_NAME}"
CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
USER: Final = 10001
#: parts of the standard library that no broker uses: tests, windows, an editor, the installer of pip
_UNUSED: Final = frozenset(
    {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data", "venv"}
    | {"__pycache__", "site-packages", "dist-packages"}
)
_UNUSED_FILES: Final = re.compile(r"_tkinter|_test|_ctypes_test|_xxtestfuzz|xxlimited|xxsubtype|turtle\.py")
_LINKED: Final = re.compile(r"^\s*(?:(?P<name>\S+) => )?(?P<path>/\S+) \(0x[0-9a-f]+\)$")
_LOADER: Final = re.compile(r"/ld-linux|/ld64|/ld-musl")


def linked(output: str) -> dict[str, Path]:
    """The shared libraries in the output of `ldd`: name to path. The dynamic loader is one of them."""
    found = {}
    for line in output.splitlines():
        match = _LINKED.match(line)
        if match is not None:
            path = Path(match["path"])
            found[match["name"] or path.name] = path
    return found


def libraries(objects: Iterable[Path]) -> dict[str, Path]:
    """The shared libraries of programs and modules, by name; those inside of Python packages are left out."""
    found: dict[str, Path] = {}
    for each in objects:
        done = subprocess.run(["ldd", each], capture_output=True, text=True)
        if "not found" in done.stdout:
            raise SystemExit(f"{each} needs a shared library that this machine lacks:\n{done.stdout}")
        found.update(linked(done.stdout))
    return {name: path for name, path in sorted(found.items()) if "site-packages" not in path.parts}


def system(certificates: Path | None) -> Iterator[Entry]:
    """Folders and files of the system: users, name resolution, certificates, a place for data."""
    for path in ("etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/local", "usr/local/bin", "usr/local/lib"):
        yield directory(path)
    yield directory("var")
    yield directory("var/lib")
    yield directory("var/lib/penstock", 0o750, USER)
    yield directory("tmp", 0o1777)
    users = f"root:x:0:0:root:/:/sbin/nologin\npenstock:x:{USER}:{USER}::/var/lib/penstock:/sbin/nologin\n"
    yield file("etc/passwd", users.encode())
    yield file("etc/group", f"root:x:0:\npenstock:x:{USER}:\n".encode())
    yield file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    if certificates is not None:
        yield from_path(CERTIFICATES, certificates)


def interpreter() -> Iterator[Entry]:
    """This interpreter with its standard library, without shared libraries of the system."""
    program = Path(sys.executable).resolve()
    yield from_path(f"usr/local/bin/{_NAME}", program)
    yield link(PYTHON, _NAME)
    yield link("usr/local/bin/python", _NAME)
    standard = Path(sysconfig.get_path("stdlib"))
    yield directory(LIBRARY)
    for path in sorted(standard.rglob("*")):
        relative = path.relative_to(standard)
        if _UNUSED & set(relative.parts) or relative.parts[0].startswith("config-"):
            continue
        if _UNUSED_FILES.match(path.name):
            continue
        if path.is_dir():
            yield directory(f"{LIBRARY}/{relative}")
        elif path.suffix in (".py", ".so"):
            yield from_path(f"{LIBRARY}/{relative}", path.resolve())


def shared(found: dict[str, Path]) -> Iterator[Entry]:
    """Shared libraries, in the folder of the C library; the loader where programs name it."""
    home = str(found["libc.so.6"].resolve().parent).removeprefix("/")
    parents = {part for name in (home, "lib64") for part in _parents(name)}
    yield from (directory(each) for each in sorted(parents))
    for name, path in found.items():
        if _LOADER.search(str(path)):
            yield from_path(str(path).removeprefix("/"), path.resolve())
        else:
            yield from_path(f"{home}/{Path(name).name}", path.resolve())


def _parents(path: str) -> Iterator[str]:
    parts = Path(path).parts
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])
