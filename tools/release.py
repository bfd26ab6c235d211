"""Builds a release: wheels, sources, software bill of materials and checksums, the same bytes each time.

python -m tools.release FOLDER [--commit COMMIT]

The sources are those of a commit, by default of the present one, so files that are not committed are not in
it. The times in the archives are the commit's (SOURCE_DATE_EPOCH). There are two distributions: `penstock-mq`
with everything, and `penstock-mq-client` (`tools.client_distribution`).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["ReleaseFailed", "build", "checksums"]

ROOT: Final = Path(__file__).parent.parent
_SUMS: Final = "SHA256SUMS"
_BILL: Final = "sbom.cdx.json"


class ReleaseFailed(Exception):
    """A step has failed; the message has its output."""


def build(folder: Path, commit: str = "HEAD") -> list[Path]:
    """Build the release of a commit into an empty folder; returns its files."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ReleaseFailed(f"{folder} is not empty: a release has no other files")
    time_s = _run(["git", "log", "-1", "--format=%ct", commit]).decode().strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": time_s, "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory(prefix="penstock-release-") as temporary:
        source, clients = Path(temporary, "source"), Path(temporary, "clients")
        with tarfile.open(fileobj=io.BytesIO(_run(["git", "archive", "--format=tar", commit]))) as archive:
            archive.extractall(source, filter="data")
        of_source = {**environment, "PYTHONPATH": str(source / "src")}
        _run([sys.executable, "-m", "tools.client_distribution", str(clients)], source, of_source)
        for each in (source, clients):
            build_one = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder.absolute())]
            _run(build_one, each, environment)
        bill = _run([sys.executable, "-m", "tools.sbom"], source, of_source)
    (folder / _BILL).write_bytes(bill)
    (folder / _SUMS).write_text(checksums(folder), encoding="utf-8")
    return sorted(folder.iterdir())


def checksums(folder: Path) -> str:
    """The SHA-256 of each file, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.name != _SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def _run(command: list[str], folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> bytes:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise ReleaseFailed(f"{' '.join(command)}: {said}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.release")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--commit", default="HEAD")
    options = parser.parse_args()
    try:
        for path in build(options.folder, options.commit):
            print(f"{path.stat().st_size:>9} {path}")
    except ReleaseFailed as failed:
        sys.exit(str(failed))


if __name__ == "__main__":
    main()
