"""Writes a data directory and its expectation: `python -m tools.golden NAME [--commit COMMIT] [--basics]`."""

from __future__ import annotations

import argparse
import io
import json
import lzma
import os
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.encryption.keys import KEY_BYTES, format_key
from tools.golden.broker import CONFIGS, SECURED, running
from tools.golden.content import fill, fill_basics, leave_open
from tools.golden.reading import basics, everything
from tools.versions import ROOT, environment

FOLDER: Final = ROOT / "tests" / "golden"


def make(name: str, interpreter: str, configs: Mapping[str, str], *, is_basic: bool) -> None:
    """Write the directory of a broker that was filled, and what clients read from it."""
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary) / "data"
        data.mkdir()
        with running(interpreter, data, configs) as bootstrap:
            fill_basics(bootstrap)
            if not is_basic:
                fill(bootstrap)
            expected = basics(bootstrap) if is_basic else everything(bootstrap)
            # Open until the broker has ended.
            producer = None if is_basic else leave_open(bootstrap)
            if producer is not None:
                expected["topics"]["pending"] = everything(bootstrap)["topics"]["pending"]
        del producer
        content = archived(data)
    expectation = {"configs": dict(configs), "basic": is_basic, "read": expected}
    (FOLDER / f"{name}.tar.xz").write_bytes(content)
    text = json.dumps(expectation, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / f"{name}.json").write_text(text.replace('],["', '],\n["') + "\n", encoding="utf-8")
    print(f"{name}: {len(content)} bytes")


def archived(data: Path) -> bytes:
    """A directory as a compressed archive, without owners and times.

    The reserve is left out: a start makes it again.
    """
    target = io.BytesIO()
    with lzma.open(target, "wb", preset=9) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(set(data.rglob("*")) - {data / "reserve"}):
            entry = archive.gettarinfo(path, str(path.relative_to(data)))
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            if path.is_file():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return target.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.golden")
    parser.add_argument("name", help="of the version, for example 0.2.0")
    parser.add_argument("--commit", help="the version's commit; by default this source")
    parser.add_argument("--basics", action="store_true", help="a version without transactions and ACLs")
    options = parser.parse_args()
    interpreter = sys.executable
    if options.commit:
        interpreter = str(environment(options.commit) / "bin" / "python")
    configs = CONFIGS if options.basics else {**CONFIGS, **SECURED}
    make(options.name, interpreter, configs, is_basic=options.basics)
    if not options.basics:
        key = format_key("golden", os.urandom(KEY_BYTES))
        encrypted = {**configs, "penstock.encryption.keys": key}
        make(f"{options.name}-encrypted", interpreter, encrypted, is_basic=False)


if __name__ == "__main__":
    main()
