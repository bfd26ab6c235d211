"""NATS with JetStream: the server is a Go module, built once into the lab.

A build takes more than a minute of CPU. `nats_installed` takes seconds instead: an older version, of Debian.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lab.debian import unpack
from lab.foreign import ForeignServer, greets
from lab.home import built, command, lab_root, require
from lab.server import HOST, free_ports

__all__ = ["VERSION", "nats_built", "nats_cluster", "nats_installed", "nats_server", "nats_server_path"]

MODULE = "github.com/nats-io/nats-server/v2"
VERSION = "v2.14.9"
SUITE = "trixie"
_PACKAGED = "usr/sbin/nats-server"


def nats_server_path() -> Path:
    """The program, built on first use; `LabError` if there is no Go or no module proxy."""
    require("go")
    return built(_folder(), (MODULE, VERSION), _build) / "nats-server"


def nats_installed() -> Path:
    """The program that is there, else Debian's package; `LabError` if that cannot be had."""
    if (program := _folder() / "nats-server").is_file():
        return program
    return built(_packaged(), (SUITE,), _unpack) / _PACKAGED


def nats_built() -> bool:
    """Returns true if there is a program. Tests that must be quick skip otherwise."""
    return (_folder() / "nats-server").is_file() or (_packaged() / _PACKAGED).is_file()


def _folder() -> Path:
    return lab_root() / "nats-server"


def _packaged() -> Path:
    return lab_root() / "nats-debian"


def _unpack(folder: Path) -> None:
    print(f"unpacking NATS of Debian {SUITE} (once)", flush=True)
    unpack(folder, SUITE, ["nats-server"])


def _build(folder: Path) -> None:
    print(f"building nats-server {VERSION} (once)", flush=True)
    command(["env", f"GOBIN={folder}", "go", "install", f"{MODULE}@{VERSION}"], folder)


def nats_server(
    folder: Path,
    jetstream: Mapping[str, Any] | None = None,
    *,
    program: Path | None = None,
    **settings: Any,
) -> ForeignServer:
    """One server, its data and log in `folder`; `program` is the built one unless given.

    `jetstream` adds to the section of this name, for example `{"sync_interval": "always"}`; `settings` are
    top-level entries of the config file.
    """
    (port,) = free_ports(1)
    return _node(program or nats_server_path(), folder, port, "nats", jetstream or {}, settings)


def nats_cluster(
    folder: Path, count: int = 3, jetstream: Mapping[str, Any] | None = None, **settings: Any
) -> list[ForeignServer]:
    """Servers of one cluster, each in a folder of its own. Launch all of them (`lab.foreign.started`).

    A server is ready when it accepts clients. JetStream needs a moment more, for the election of its leader.
    """
    found = free_ports(2 * count)
    ports, routes = found[:count], found[count:]
    program = nats_server_path()
    nodes = []
    for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
        home = folder / f"nats-{number}"
        home.mkdir(parents=True, exist_ok=True)
        cluster = {
            "name": "penstock-lab",
            "listen": f"{HOST}:{route}",
            "routes": [f"nats://{HOST}:{each}" for each in routes],
        }
        top = {**settings, "cluster": cluster}
        nodes.append(_node(program, home, port, f"nats-{number}", jetstream or {}, top))
    return nodes


def _node(
    program: Path,
    folder: Path,
    port: int,
    name: str,
    jetstream: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> ForeignServer:
    configuration = folder / "nats.json"
    document = {
        "server_name": name,
        "listen": f"{HOST}:{port}",
        "jetstream": {"store_dir": str(folder / "data"), **jetstream},
        **settings,
    }
    configuration.write_text(json.dumps(document, indent=2), encoding="utf-8")
    command_line = [str(program), "--config", str(configuration)]
    # A server says hello first.
    ready = partial(greets, port, b"", b"INFO {")
    return ForeignServer("nats", port, command_line, folder / "nats.log", start_timeout=60.0, is_ready=ready)
