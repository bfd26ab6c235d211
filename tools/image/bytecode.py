"""Compiles the modules of an image: on a read-only root no process could store bytecode.

The files name no times of sources, and are valid without a look at them.
"""

from __future__ import annotations

import importlib.util
import py_compile
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.image.entries import Entry, file

__all__ = ["compiled"]


def compiled(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries, and the bytecode of each module. Files that are no module of this version have none."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry in entries:
            yield entry
            if entry.path.endswith(".py"):
                yield from _compiled(entry, Path(folder))


def _compiled(entry: Entry, folder: Path) -> Iterator[Entry]:
    source, target = folder / "module.py", folder / "module.pyc"
    source.write_bytes(entry.read())
    try:
        py_compile.compile(
            str(source),
            str(target),
            dfile=f"/{entry.path}",
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except (py_compile.PyCompileError, ValueError) as error:
        # Packages ship modules for other versions, such as templates; importing them fails there, too.
        print(f"not compiled: {entry.path}: {str(error).splitlines()[0]}", file=sys.stderr)
        return
    yield file(importlib.util.cache_from_source(entry.path), target.read_bytes())
