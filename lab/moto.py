"""moto, an emulator of AWS, as a server in an environment of its own. It shows semantics and no speed."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from lab.environments import make_environment
from lab.foreign import ForeignServer, greets
from lab.home import built, lab_root
from lab.server import HOST, free_port

__all__ = ["VERSION", "moto_built", "moto_python", "moto_server"]

VERSION = "5.2.5"
_HELLO = b"GET /moto-api/ HTTP/1.0\r\n\r\n"


def moto_server(folder: Path) -> ForeignServer:
    """A server with SQS and SNS, in memory, its log in `folder`; `LabError` if it cannot be installed."""
    port = free_port()
    program = [str(moto_python()), "-m", "moto.server", "-H", HOST, "-p", str(port)]
    ready = partial(greets, port, _HELLO, b"HTTP/1.")
    return ForeignServer("moto", port, program, folder / "moto.log", start_timeout=60.0, is_ready=ready)


def moto_python() -> Path:
    """The interpreter that has moto, installed on first use; `LabError` if it cannot be installed."""
    folder = built(_folder(), (VERSION, sys.version), _install)
    return folder / "bin" / "python"


def moto_built() -> bool:
    """Returns true if moto is installed. Tests that must be quick skip otherwise."""
    return _folder().with_name("moto.stamp").is_file()


def _folder() -> Path:
    return lab_root() / "moto"


def _install(folder: Path) -> None:
    print(f"installing moto {VERSION} (once)", flush=True)
    # SQS and SNS need no more; `moto[server]` would bring the dependencies of every service.
    make_environment(folder, f"moto=={VERSION}", "flask", "flask-cors")
