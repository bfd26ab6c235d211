"""Builds the container image, without a registry and without a base image.

make image      # python -m tools.image

`build/image/penstock.tar` is an OCI archive, for `podman load`, `docker load`, `ctr images import` and
`skopeo copy oci-archive:…`. Its root file system has this interpreter, its shared libraries, and the packages
of this environment: nothing else, no shell, no package manager. The same environment gives the same bytes.

--root FOLDER writes the file system into a folder instead, for `deploy/image/Containerfile`.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from penstock import __version__
from tools.image.bytecode import compiled
from tools.image.entries import Entry
from tools.image.interpreter import CERTIFICATES, PYTHON, USER, interpreter, libraries, shared, system
from tools.image.measuring import start_seconds
from tools.image.oci import layer, write_archive
from tools.image.packages import dependencies, project

__all__ = ["image_config", "layers_of"]

NAME: Final = "localhost/penstock"
_ARCHIVE: Final = Path("build/image/penstock.tar")
_AUTHORITIES: Final = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_SECOND_NS: Final = 1_000_000_000


def image_config(created: str, revision: str) -> dict[str, Any]:
    """The config of the image: who runs what, and how a container is healthy."""
    return {
        "created": created,
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "WorkingDir": "/var/lib/penstock",
            "Entrypoint": [f"/{PYTHON}", "-m", "penstock"],
            "Cmd": ["up"],
            "Env": [
                "PATH=/usr/local/bin",
                "PYTHONUNBUFFERED=1",
                "PYTHONDONTWRITEBYTECODE=1",
                f"SSL_CERT_FILE=/{CERTIFICATES}",
                "HOME=/var/lib/penstock",
            ],
            "ExposedPorts": {"9092/tcp": {}, "8088/tcp": {}},
            "Volumes": {"/var/lib/penstock": {}},
            "StopSignal": "SIGTERM",
            # Docker reads this; Kubernetes has probes of its own.
            "Healthcheck": {
                "Test": ["CMD", f"/{PYTHON}", "-m", "penstock", "container", "probe"],
                "Interval": 10 * _SECOND_NS,
                "Timeout": 5 * _SECOND_NS,
                "StartPeriod": 60 * _SECOND_NS,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "penstock",
                "org.opencontainers.image.version": __version__,
                "org.opencontainers.image.revision": revision,
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.description": "A message broker that speaks the Kafka protocol",
            },
        },
    }


def layers_of(
    complete: Callable[[Iterable[Entry]], Iterable[Entry]] = compiled,
) -> list[tuple[str, list[Entry]]]:
    """Note and entries of each layer: those that change least come first. `complete` adds bytecode."""
    python, packages = list(interpreter()), list(dependencies())
    objects = [each.source for each in (*python, *packages) if each.source is not None]
    programs = [each for each in objects if each.suffix == ".so" or ".so." in each.name or _is_program(each)]
    certificates = next((path for path in _AUTHORITIES if path.is_file()), None)
    base = [*system(certificates), *shared(libraries(programs)), *python]
    return [
        ("the interpreter and its shared libraries", list(complete(base))),
        ("packages that Penstock needs", list(complete(packages))),
        (f"Penstock {__version__}", list(complete(project()))),
    ]


def write_root(folder: Path, entries: Iterable[Entry]) -> None:
    """Write entries into a folder; folders of other users get their owner if this user may set it."""
    for entry in entries:
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.is_directory:
            path.mkdir(exist_ok=True)
            path.chmod(entry.mode)
        elif entry.target:
            path.unlink(missing_ok=True)
            path.symlink_to(entry.target)
        else:
            path.write_bytes(entry.read())
            path.chmod(entry.mode)
        if entry.owner and os.geteuid() == 0:
            os.chown(path, entry.owner, entry.owner)


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.image")
    parser.add_argument("--out", type=Path, default=_ARCHIVE)
    parser.add_argument("--root", type=Path, help="write the file system here, instead of an archive")
    parser.add_argument("--tag", default=__version__)
    parser.add_argument("--revision", default="", help="the commit, for the labels of the image")
    parser.add_argument("--measure", action="store_true", help="start a broker on the file system, as root")
    options = parser.parse_args(arguments)
    if not shutil.which("ldd"):
        sys.exit("the image needs ldd, which glibc-based systems have")
    found = layers_of()
    if options.root is not None:
        for _, entries in found:
            write_root(options.root, entries)
        return
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    layers = [layer(entries, note) for note, entries in found]
    config = image_config(created, options.revision)
    digest = write_archive(options.out, layers, config, [f"{NAME}:{options.tag}"])
    size = sum(len(entry.read()) for _, entries in found for entry in entries)
    for each in layers:
        print(f"{len(each.data) / 1e6:8.1f} MB  {each.note}")
    print(f"{options.out.stat().st_size / 1e6:8.1f} MB  {options.out}: {NAME}:{options.tag} {digest}")
    print(f"{size / 1e6:8.1f} MB  unpacked")
    if options.measure:
        variables = config["config"]["Env"]
        took = start_seconds((entry for _, entries in found for entry in entries), variables, write_root)
        print("the start can only be measured as root" if took is None else f"{took:8.2f} s   until ready")


if __name__ == "__main__":
    main(sys.argv[1:])
